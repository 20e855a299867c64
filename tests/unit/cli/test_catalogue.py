from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import Everything, TradeDone
from tutti.cli.catalogue import advertise as advertise_places
from tutti.cli.catalogue import document_types, fields, show_type, show_types
from tutti.cli.output import ConsoleOutput
from tutti.errors import TuttiError, UnknownType
from tutti.model.advertisement import advertise
from tutti.model.event import event_type
from tutti.model.txtype import TxType


class Session(TxType, events=[TradeDone]):
    """What is traded together."""

    market: str


def test_fields_are_described_in_words() -> None:
    found = fields(advertise(event_type(Everything)).schema)
    words = {name: kind for name, (kind, _) in found.items()}
    assert (
        words
        | {
            "symbol": "string",
            "side": "Side",
            "at": "date-time",
            "identity": "uuid",
            "tags": "list of string",
            "pair": "[integer, string]",
            "blob": "base64",
            "rates": "map to decimal",
            "region": "string | null",
            "choice": "1 | 2 | x",
            "anything": "anything",
        }
        == words
    )
    assert [name for name, (_, required) in found.items() if required][:2] == ["symbol", "side"]


async def test_types_are_listed_and_shown(
    session: MemorySession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    await show_types(session)
    async with session.bus() as bus:
        await bus.advertise(TradeDone, Everything)
    await show_types(session)
    await show_type(session, "TradeDone")
    nothing, both, one = session.answers.shown
    assert nothing.types == []
    assert [known.type for known in both.types] == ["Everything", "TradeDone"]
    for shown in session.answers.shown:
        ConsoleOutput().show(shown)
    said = capsys.readouterr().out
    assert "no type is advertised yet" in said
    assert "symbol, price, quantity" in said
    assert "A trade was made." in said
    assert "routing, key" in said
    assert one.as_json().type == "TradeDone"


async def test_transaction_types_are_listed_and_shown_with_their_events(
    session: MemorySession, capsys: pytest.CaptureFixture[str]
) -> None:
    async with session.bus() as bus:
        await bus.advertise(Session)
    await show_types(session)
    await show_type(session, "Session")
    for shown in session.answers.shown:
        ConsoleOutput().show(shown)
    said = capsys.readouterr().out
    assert "TradeDone" in said
    assert "may publish TradeDone" in said
    assert "a transaction type" in said
    both, one = session.answers.shown
    assert [known.events for known in both.transactions] == [("TradeDone",)]
    assert one.as_json().type == "Session"


async def test_an_unknown_type_names_the_known_ones(session: MemorySession) -> None:
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
    with pytest.raises(UnknownType) as caught:
        await show_type(session, "Trade")
    assert "TradeDone" in caught.value.hint


async def test_the_asyncapi_document_is_shown_or_written(session: MemorySession, tmp_path: Path) -> None:
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
    await document_types(session, "", "Trading")
    await document_types(session, str(tmp_path / "api.json"), "Trading")
    shown, written = session.answers.shown
    assert shown.as_json()["asyncapi"] == "3.0.0"
    assert shown.as_json() == json.loads((tmp_path / "api.json").read_text())
    assert written.types == 1
    with pytest.raises(TuttiError, match="cannot be written"):
        await document_types(session, str(tmp_path), "Trading")


async def test_types_are_advertised_by_their_place(session: MemorySession) -> None:
    await advertise_places(session, ["tests.unit.cli.trading:TradeDone"])
    assert session.answers.shown[0].types == ["TradeDone"]
    async with session.bus() as bus:
        assert [known.type for known in await bus.types()] == ["TradeDone"]
        with pytest.raises(TuttiError, match="no attribute Nothing"):
            await advertise_places(session, ["tests.unit.cli.trading:Everything", "tests.unit.cli.trading:Nothing"])
        assert [known.type for known in await bus.types()] == ["TradeDone"]  # all, or none

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from tests.unit.cli.conftest import MemorySession
from tutti.bus.port import Record
from tutti.cli.letters import LetterList, LetterRow, Settled, settle_letters, show_letters, show_one_letter
from tutti.cli.output import ConsoleOutput
from tutti.errors import DeclarationError, TuttiError
from tutti.model.envelope import Envelope
from tutti.runtime.dead import DeadLetter


async def buried(session: MemorySession, *subscribers: str) -> None:
    async with session.bus() as bus:
        for i, subscriber in enumerate(subscribers, 1):
            letter = DeadLetter.of(
                Record("tutti.event.x", {"ce-id": f"e-{i}"}, b'{"a": 1}' if i == 1 else b"\xff", i),
                Envelope(id=f"e-{i}", source="/x", type="TradeDone"),
                subscriber=subscriber,
                subscription="trade",
                stream="tutti-events-events",
                reason="ValueError: [no]\nmore",
                attempts=5,
                traceback="Traceback…",
                buried_at=datetime(2026, 1, 31, tzinfo=UTC),
            )
            await bus.dead.bury(letter, timeout=1)


async def test_letters_are_listed_and_shown(session: MemorySession, capsys: pytest.CaptureFixture[str]) -> None:
    await show_letters(session, "")
    await buried(session, "desk", "audit", "desk")
    await show_letters(session, "")
    await show_letters(session, "desk")
    await show_one_letter(session, 1)
    await show_one_letter(session, 2)
    none, every, of_desk, first, second = session.answers.shown
    assert none.letters == []
    assert [row.number for row in every.letters] == [1, 2, 3]
    assert [row.number for row in of_desk.letters] == [1, 3]
    assert first.data == {"a": 1}
    assert second.data == "\\xff"
    for shown in session.answers.shown:
        ConsoleOutput().show(shown)
    said = capsys.readouterr().out
    assert "no dead letters" in said
    assert "ValueError: [no]" in said
    assert "Traceback…" in said
    with pytest.raises(TuttiError, match="no dead letter 9"):
        await show_one_letter(session, 9)


def test_a_row_is_a_line_and_an_id_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    today = datetime.now(UTC).isoformat()
    row = LetterRow(7, "fraud", "check_the_order", "OrderPlaced", "i" * 36, "ValueError: long " * 20, 5, today)
    ConsoleOutput().show(LetterList([row, msgspec.structs.replace(row, buried_at="2020-01-31T10:00:00+00:00")]))
    head, now, before = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["no.", "when"]
    assert "i" * 36 in now
    assert today[:10] not in now
    assert "2020-01-31 " in before
    assert max(map(len, (now, before))) <= 80


def test_one_is_no_plural() -> None:
    assert Settled("dropped", [3]).__rich__() == "dropped 1 dead letter: 3"


async def test_letters_are_dropped_and_replayed(session: MemorySession) -> None:
    await buried(session, "desk", "audit", "desk", "audit")
    await settle_letters(session, "dropped", [2], every=False, subscriber="")
    await settle_letters(session, "replayed", [], every=True, subscriber="desk")
    assert [(done.done, done.numbers) for done in session.answers.shown] == [("dropped", [2]), ("replayed", [1, 3])]
    async with session.bus() as bus:
        assert [letter.number async for letter in bus.dead.each()] == [4]
        assert len(await bus.context.transport.take("replay-desk", max_messages=5, wait=0.1)) == 2


@pytest.mark.parametrize(("numbers", "every", "subscriber"), [([], False, ""), ([1], True, ""), ([1], False, "desk")])
async def test_which_letters_must_be_clear(
    session: MemorySession, numbers: list[int], every: bool, subscriber: str
) -> None:
    with pytest.raises(DeclarationError):
        await settle_letters(session, "dropped", numbers, every=every, subscriber=subscriber)

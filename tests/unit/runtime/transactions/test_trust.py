"""Whom we believe: the first key that stands on the bus, or the one that is pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

import tutti
from tutti.errors import JournalUnfit
from tutti.runtime.transactions.keys import SigningKey, keep_journal_key
from tutti.runtime.transactions.opening import JOURNAL_FILE, KEY_FILE, CoordinatorOpener
from tutti.runtime.transactions.trust import Trust
from tutti.testing.kit import BusKit


async def test_the_first_that_writes_is_believed(tutti_bus: BusKit) -> None:
    transport = tutti_bus.context.transport
    trust = Trust(transport)
    assert await trust.load() == ""
    await Trust(transport).declare("j1", "first")
    assert await trust.load() == "first"
    with pytest.raises(JournalUnfit):
        await Trust(transport).declare("j1", "second")


async def test_a_pinned_key_is_believed_whatever_the_bus_says(
    tutti_bus: BusKit, caplog: pytest.LogCaptureFixture
) -> None:
    transport = tutti_bus.context.transport
    await Trust(transport).declare("j2", "a stranger's")
    trust = Trust(transport, "ours")
    assert await trust.load() == "ours"
    assert "not the one that is trusted" in caplog.text
    with pytest.raises(JournalUnfit):
        await trust.declare("j1", "ours")


def test_the_folder_of_the_journal_pins_its_key(tmp_path: Path) -> None:
    assert CoordinatorOpener(tmp_path, tmp_path).public_key() == ""
    key = keep_journal_key(tmp_path / KEY_FILE)
    (tmp_path / JOURNAL_FILE).touch()
    assert CoordinatorOpener(tmp_path, tmp_path).public_key() == key.public
    assert tutti.connect(data=tmp_path)._trusted == key.public
    assert tutti.connect("nats://127.0.0.1:1", journal=tmp_path)._trusted == key.public
    mine = SigningKey.fresh().public
    assert tutti.connect("nats://127.0.0.1:1", trusted=mine)._trusted == mine


def test_a_folder_that_happens_to_be_here_says_nothing_about_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUTTI_DATA", str(tmp_path))
    keep_journal_key(tmp_path / KEY_FILE)
    (tmp_path / JOURNAL_FILE).touch()
    assert tutti.connect("nats://127.0.0.1:1")._trusted == ""

"""Work that is committed before the decision, and how it is undone: once, in one piece, through crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import tutti
from tutti.bus.port import Record
from tutti.control.participation.machine import Participation
from tutti.errors import AnswerLost, BranchUnknown, JournalUnreachable, ResourceBusy, ResourceUnfit
from tutti.journal import LogRow
from tutti.journal.sqlite import SqliteParticipantLog
from tutti.model.event import event_type
from tutti.model.involvement import Involvement
from tutti.model.transaction import PUBLISHER, Consumed, ParticipantRecord
from tutti.resources import BranchId
from tutti.resources.memory import MemoryResource, MemoryStore, MemoryWork
from tutti.runtime.bus import Bus
from tutti.runtime.transactions import undoing as module
from tutti.runtime.transactions.events import compose, draft, hear
from tutti.runtime.transactions.keys import PayloadKey, SigningKey
from tutti.runtime.transactions.participant import Participants
from tutti.runtime.transactions.sessions import Session, Undone
from tutti.runtime.transactions.taking import Taking
from tutti.runtime.transactions.undoing import (
    Kept,
    Undoing,
    decode_kept,
    decode_row,
    encode_kept,
    encode_row,
)

TX = "j1-r1-1"


class Invitation(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    subject: str


class Desk:
    """A participant whose work is committed at once, with two databases; and what its compensators did."""

    def __init__(self, bus: Bus, log: SqliteParticipantLog) -> None:
        self.rooms = MemoryResource("rooms", MemoryStore())
        self.bills = MemoryResource("bills", MemoryStore())
        self.subscriber = tutti.Subscriber("desk", resources=[self.rooms, self.bills])
        self.undone: list[str] = []
        self.fails = 0
        self.both = False

        @self.subscriber.join(Meeting, compensatable=True)
        async def interested(invite: tutti.Invite[Meeting]) -> bool:
            return True

        @self.subscriber.on(Invitation)
        async def book(event: Invitation, tx: tutti.Branch) -> None: ...

        @self.subscriber.on(Invitation, where="room = 'FW26'")
        async def note(event: Invitation, tx: tutti.Branch) -> None: ...

        @book.compensate
        async def release(event: Invitation, tx: tutti.Branch) -> None:
            (await tx.enlist(self.rooms)).put(event.room, None)
            if self.both:
                (await tx.enlist(self.bills)).put(event.room, "refunded")
            if self.fails:
                self.fails -= 1
                raise ValueError("not now")
            self.undone.append(f"book {event.room}")

        @note.compensate
        async def erase(event: Invitation, tx: tutti.Branch) -> None:
            self.undone.append(f"note {event.room}")

        parts = self.subscriber.parts()
        self.log = log
        self.host = Participants(bus.context, parts, log, "desk-1")
        key = SigningKey.fresh()
        self.part = self.host.part(parts.joinings[0], TX, "p1", key, 4e9)
        self.taking = Taking(self.host, parts.joinings[0], self.part, Participation(self.part), key)
        self.undoing = Undoing(self.host.site, self.taking)

    def kept(self, room: str = "FW26", *, step: int = 1, home: str = "rooms", key: PayloadKey | None = None) -> Kept:
        place = Involvement(TX, PUBLISHER, step, "private" if key else "public", "c", 1, 4e9)
        layout = self.host.site.context.layout
        event = draft(event_type(Invitation), Invitation(room))
        made = compose(layout, event, place, source="/test/run", time="2026-11-18T12:00:00Z", key=key)
        heard = hear(Record(made.subject, made.headers, made.data, step))
        assert heard is not None
        return Kept(heard.consumed, step, "1", home, heard.envelope.attributes(), heard.envelope.data)

    def row(self, *events: Consumed) -> LogRow:
        record = ParticipantRecord(TX, "p1", self.part.key, "voted", 1, 1, 4e9, compensatable=True, consumed=events)
        return LogRow("desk", TX, record, b"s" * 32, instance="desk-1", type="Meeting")

    async def worked(self, *rooms: str, bill: bool = False) -> Session:
        session = Session("desk", TX, "1")
        for room in rooms:
            (await session.enlist(self.rooms)).put(room, TX)
            if bill:
                (await session.enlist(self.bills)).put(room, "billed")
        return session


@pytest_asyncio.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(module, "FINISH_RETRY_SECONDS", 0.001)
    log = SqliteParticipantLog(tmp_path / "participants.db")
    await log.start()
    async with tutti.connect("memory://") as bus:
        yield Desk(bus, log)
    await log.close()


# Committing at once


async def test_with_one_resource_work_and_row_are_committed_together(desk: Desk) -> None:
    session = await desk.worked("FW26", "FW27")
    row = desk.row()
    await desk.undoing.commit(session, {1: b"", 2: b""}, lambda: row)
    assert desk.rooms.store.data == {"FW26": TX, "FW27": TX}
    assert session.committed
    steps = await desk.rooms.completed(session.branch("rooms"))
    assert [decode_row(step.entry) for step in steps] == [None, row], "the row is the entry of the last step"
    assert await desk.log.open_rows("desk") == ()


async def test_with_several_resources_the_row_in_the_log_decides(desk: Desk) -> None:
    session = await desk.worked("FW26", bill=True)
    asked: list[tuple[str, ...]] = []

    def row() -> LogRow:
        asked.append(session.descriptors)  # what is prepared by now
        return desk.row()

    await desk.undoing.commit(session, {1: b""}, row)
    assert asked == [("rooms 1", "bills 1")]
    assert (desk.rooms.store.data, desk.bills.store.data) == ({"FW26": TX}, {"FW26": "billed"})
    assert [found.tx for found in await desk.log.open_rows("desk")] == [TX]


async def test_without_a_resource_the_row_is_all(desk: Desk) -> None:
    await desk.undoing.commit(Session("desk", TX, "1"), {1: b""}, desk.row)
    assert len(await desk.log.open_rows("desk")) == 1


class FailingLog:
    """The log, but its answers are lost, or it is away, as often as the test says."""

    def __init__(self, log: SqliteParticipantLog, *errors: Exception) -> None:
        self._log = log
        self.errors = list(errors)

    async def write(self, row: LogRow) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is None or isinstance(error, AnswerLost):
            await self._log.write(row)
        if error is not None:
            raise error


def failing(desk: Desk, *errors: Exception) -> FailingLog:
    desk.host.site.log = log = FailingLog(desk.log, *errors)  # type: ignore[assignment]  # as much of a log as is used
    return log


async def test_an_answer_that_was_lost_is_asked_for_until_it_comes(desk: Desk) -> None:
    log = failing(desk, AnswerLost("lost"), JournalUnreachable("away"), AnswerLost("lost"))
    session = await desk.worked("FW26", bill=True)
    await desk.undoing.commit(session, {1: b""}, desk.row)
    assert log.errors == []
    assert (desk.rooms.store.data, desk.bills.store.data) == ({"FW26": TX}, {"FW26": "billed"})


async def test_a_row_that_is_not_written_leaves_no_work(desk: Desk) -> None:
    failing(desk, JournalUnreachable("away"))
    session = await desk.worked("FW26", bill=True)
    with pytest.raises(JournalUnreachable):
        await desk.undoing.commit(session, {1: b""}, desk.row)
    for resource in (desk.rooms, desk.bills):
        assert (resource.store.data, list(resource.store.prepared)) == ({}, [])


@pytest.mark.parametrize("happened", [True, False])
async def test_after_a_commit_whose_answer_was_lost_the_barrier_tells(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    session = await desk.worked("FW26")
    commit = MemoryWork.commit

    async def lost(work: MemoryWork) -> None:
        monkeypatch.setattr(MemoryWork, "commit", commit)
        await (commit(work) if happened else work.rollback())
        raise BranchUnknown("the connection broke")

    monkeypatch.setattr(MemoryWork, "commit", lost)
    if happened:
        await desk.undoing.commit(session, {1: b""}, desk.row)
        assert desk.rooms.store.data == {"FW26": TX}
    else:
        with pytest.raises(BranchUnknown):
            await desk.undoing.commit(session, {1: b""}, desk.row)
        assert desk.rooms.store.data == {}


# Undoing


async def committed(desk: Desk, *, bill: bool = False) -> Kept:
    session = await desk.worked("FW26", bill=bill)
    await desk.undoing.commit(session, {1: b""}, desk.row)
    return desk.kept()


async def test_it_is_undone_once_the_last_handler_first(desk: Desk) -> None:
    kept = await committed(desk)
    await desk.undoing.undo(kept)
    assert desk.undone == ["note FW26", "book FW26"]
    assert desk.rooms.store.data == {}
    await desk.undoing.undo(kept)
    assert desk.undone == ["note FW26", "book FW26"]


async def test_only_handlers_that_took_the_event_are_undone(desk: Desk) -> None:
    session = await desk.worked("FW99")
    await desk.undoing.commit(session, {1: b""}, desk.row)
    await desk.undoing.undo(desk.kept("FW99"))
    assert desk.undone == ["book FW99"], "the filter of the other one did not let it pass"


async def test_what_never_happened_is_not_undone_and_can_never_happen(desk: Desk) -> None:
    await desk.undoing.undo(desk.kept())
    assert desk.undone == []
    late = await desk.worked("FW26")
    with pytest.raises(Undone):
        await desk.undoing.commit(late, {1: b""}, desk.row)
    assert desk.rooms.store.data == {}
    await desk.undoing.undo(desk.kept())
    assert desk.undone == []


async def test_a_compensation_that_fails_leaves_nothing_and_is_tried_again(desk: Desk) -> None:
    kept = await committed(desk)
    desk.fails, desk.both = 1, True
    with pytest.raises(ValueError, match="not now"):
        await desk.undoing.undo(kept)
    assert (desk.rooms.store.data, desk.bills.store.data) == ({"FW26": TX}, {})
    assert not desk.bills.store.prepared
    await desk.undoing.undo(kept)
    assert (desk.rooms.store.data, desk.bills.store.data) == ({}, {"FW26": "refunded"})


@pytest.mark.parametrize("crash", ["before the home's commit", "after the home's commit"])
async def test_a_crash_between_two_resources_is_settled_by_the_barrier(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    kept = await committed(desk, bill=True)
    desk.both = True
    commit = MemoryWork.commit

    async def crashing(work: MemoryWork) -> None:
        if crash.startswith("after"):
            await commit(work)
        monkeypatch.setattr(MemoryWork, "commit", commit)
        raise BranchUnknown("the process ended here")

    monkeypatch.setattr(MemoryWork, "commit", crashing)
    with pytest.raises(BranchUnknown):
        await desk.undoing.undo(kept)
    assert len(desk.bills.store.prepared) == 1
    if crash.startswith("before"):
        for work in desk.rooms._works:
            await work.rollback()  # with its process, its locks are gone
    runs = len(desk.undone)
    await desk.undoing.undo(kept)
    assert (desk.rooms.store.data, desk.bills.store.data) == ({}, {"FW26": "refunded"})
    assert not desk.bills.store.prepared
    assert len(desk.undone) == (runs if crash.startswith("after") else 2 * runs)


async def test_a_resource_that_is_held_is_tried_again(desk: Desk) -> None:
    kept = await committed(desk)
    other = await desk.rooms.begin(BranchId("somebody", TX, "rooms-1"))
    other.connection.put("FW26", "mine")
    with pytest.raises(ResourceBusy):
        await desk.undoing.undo(kept)
    await other.rollback()
    await desk.undoing.undo(kept)
    assert desk.rooms.store.data == {}


async def test_without_a_resource_its_compensator_works_in_a_transaction_of_its_own(desk: Desk) -> None:
    desk.both, desk.fails = True, 1
    kept = desk.kept(home="")
    with pytest.raises(ValueError, match="not now"):
        await desk.undoing.undo(kept)
    assert desk.bills.store.data == {}
    await desk.undoing.undo(kept)
    assert desk.bills.store.data == {"FW26": "refunded"}


async def test_what_is_not_declared_any_more_is_named(desk: Desk) -> None:
    with pytest.raises(ResourceUnfit, match="'ledger' is not declared any more"):
        await desk.undoing.undo(desk.kept(home="ledger"))
    kept = await committed(desk)
    del desk.subscriber.compensators["note"]
    with pytest.raises(ResourceUnfit, match="'note' has no compensator any more"):
        await desk.undoing.undo(kept)


async def test_a_private_event_is_undone_with_its_key(desk: Desk) -> None:
    await committed(desk)
    key = PayloadKey.fresh()
    kept = desk.kept(key=key)
    assert b"FW26" not in encode_kept(kept)
    desk.taking.payload_key = key
    await desk.undoing.undo(kept)
    assert desk.undone == ["note FW26", "book FW26"]


# On disk


def test_what_was_handled_is_read_as_it_was_written(desk: Desk) -> None:
    kept = desk.kept()
    assert decode_kept(encode_kept(kept)) == kept
    heard = decode_kept(encode_kept(kept)).heard()
    assert heard is not None
    assert (heard.consumed, heard.involvement.tx) == (kept.event, TX)
    row = desk.row(kept.event)
    assert decode_row(encode_row(row)) == row


@pytest.mark.parametrize("entry", [b"", b"nonsense", b"\xc1"])
def test_what_is_no_row_is_none(entry: Any) -> None:
    assert decode_row(entry) is None

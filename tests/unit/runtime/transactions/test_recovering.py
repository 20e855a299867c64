"""What a process finds that another one left: rows of the log, and rows that stand in a resource's barrier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

import tutti
from tests.scripted_manager import Script, ScriptedManager
from tests.unit.runtime.transactions.staged import until
from tutti.journal import LogRow
from tutti.journal.sqlite import SqliteParticipantLog
from tutti.model.envelope import Envelope
from tutti.model.involvement import Involvement
from tutti.model.messages import Ended
from tutti.model.transaction import PUBLISHER, Consumed, LogState, Outcome, ParticipantRecord, member_hash
from tutti.resources import BranchId
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.keys import SigningKey
from tutti.runtime.transactions.own_log import FILE
from tutti.runtime.transactions.participant import Participants
from tutti.runtime.transactions.undoing import Kept, encode_kept, encode_row

EVENT = Consumed(PUBLISHER, "Invitation", 1, 1)


class Invitation(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    subject: str


class Rooms:
    def __init__(self, *, compensatable: bool = False) -> None:
        self.store = MemoryStore()
        self.calendar = MemoryResource("calendar", self.store)
        self.subscriber = tutti.Subscriber("rooms", resources=[self.calendar])
        self.handled: list[str] = []
        self.undone: list[str] = []

        @self.subscriber.join(Meeting, compensatable=compensatable, patience=0.2)
        async def interested(invite: tutti.Invite[Meeting]) -> bool:
            return True

        @self.subscriber.on(Invitation)
        async def book(event: Invitation, tx: tutti.Branch) -> None:
            self.handled.append(event.room)

        @book.compensate
        async def release(event: Invitation, tx: tutti.Branch) -> None:
            (await tx.enlist(self.calendar)).put(event.room, None)
            self.undone.append(event.room)


class Left:
    """A process of `rooms` that died after its yes in the first scripted transaction."""

    def __init__(self, script: Script, log: SqliteParticipantLog) -> None:
        self.script = script
        self.log = log
        self.key = SigningKey(b"m" * 32)

    def row(self, *, instance: str = "rooms-0", compensatable: bool = False, resources: tuple[str, ...] = ()) -> LogRow:
        record = ParticipantRecord(
            tx=self.script.tx,
            pseudonym="p1",
            key=self.key.public,
            state="voted",
            epoch=1,
            round=1,
            deadline=self.script.deadline,
            compensatable=compensatable,
            consumed=(EVENT,),
            branches=(1,),
        )
        place = Involvement(self.script.tx, PUBLISHER, 1, "public", "c", 1, self.script.deadline)
        envelope = Envelope(id="e1", source="/test", type="Invitation", extensions=place.extensions())
        kept = Kept(EVENT, 1, "1", "calendar", envelope.attributes(), b'{"room":"FW26"}')
        return LogRow(
            "rooms",
            self.script.tx,
            record,
            self.key.seed,
            resources,
            events=(encode_kept(kept),) if compensatable else (),
            instance=instance,
            type="Meeting",
        )

    async def prepared(self, rooms: Rooms) -> None:
        work = await rooms.calendar.begin(BranchId("rooms", self.script.tx, "calendar-1"))
        work.connection.put("FW26", self.script.tx)
        await work.prepare()

    async def committed_in_barrier(self, rooms: Rooms, row: LogRow) -> None:
        work = await rooms.calendar.begin(BranchId("rooms", self.script.tx, "calendar-1"))
        work.connection.put("FW26", self.script.tx)
        await work.enter(1, encode_row(row))
        await work.commit()

    async def end(self, outcome: str) -> Ended:
        self.script.members = (member_hash(self.script.tx, "p1"),)
        self.script.decide(outcome)
        given = await self.script.manager.next(Ended, self.script.tx)
        assert isinstance(given.message, Ended)
        assert given.signer == self.key.public, "it speaks with the key of the one that died"
        return given.message


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteParticipantLog]:
    log = SqliteParticipantLog(tmp_path / FILE)
    await log.start()
    yield log
    await log.close()


@pytest_asyncio.fixture
async def bus(tmp_path: Path, log: SqliteParticipantLog) -> AsyncIterator[Bus]:
    async with tutti.connect("memory://", journal=tmp_path) as bus:
        await bus.advertise(Invitation)
        yield bus


@pytest_asyncio.fixture
async def left(bus: Bus, log: SqliteParticipantLog) -> AsyncIterator[Left]:
    async with ScriptedManager(bus) as manager:
        yield Left(Script(manager, Meeting("DSOnline"), scope="public"), log)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_a_prepared_branch_is_finished_by_its_row_alone(bus: Bus, left: Left, outcome: str) -> None:
    rooms = Rooms()
    await left.prepared(rooms)
    await left.log.write(left.row(resources=("calendar 1",)))
    async with bus.serve(rooms.subscriber):
        assert rooms.store.data == {}
        assert len(rooms.store.prepared) == 1, "after a yes nothing is done without the decision"
        assert (await left.end(outcome)).outcome == outcome
    assert rooms.store.data == ({"FW26": left.script.tx} if outcome == "commit" else {})
    assert not rooms.store.prepared
    assert rooms.handled == []
    assert await left.log.open_rows("rooms") == ()


async def test_a_row_whose_instance_lives_is_left_alone(bus: Bus, left: Left) -> None:
    rooms = Rooms()
    await left.prepared(rooms)
    await left.log.beat("rooms-0", seconds=60)
    await left.log.write(left.row(resources=("calendar 1",)))
    async with bus.serve(rooms.subscriber):
        [row] = await left.log.open_rows("rooms")
        assert row.instance == "rooms-0"
        left.script.decide("commit")
        # Its end can be seen in what comes after it: a transaction of our own.
        other = Script(left.script.manager, Meeting("DSOnline"), 2, scope="public")
        await other.census()
        other.prepare()
        assert (await other.manager.vote(other.tx)).value == "yes"
        assert len(rooms.store.prepared) == 1
        await left.log.release("rooms-0")  # it stops, and need not be waited for
        await until(lambda: _taken_up(bus, left))
        assert (await left.end("commit")).outcome == "commit"
    assert rooms.store.data == {"FW26": left.script.tx}


def _taken_up(bus: Bus, left: Left) -> bool:
    participants = bus.services[0].participants
    return participants is not None and left.script.tx in participants.takings


async def test_a_row_in_a_barrier_counts_as_one_in_the_log(bus: Bus, left: Left) -> None:
    rooms = Rooms(compensatable=True)
    await left.committed_in_barrier(rooms, left.row(compensatable=True))
    async with bus.serve(rooms.subscriber):
        [row] = await left.log.open_rows("rooms")
        assert (row.tx, row.record.state) == (left.script.tx, "voted")
        assert (await left.end("abort")).outcome == "abort"
        assert rooms.undone == ["FW26"]
    assert rooms.store.data == {}
    assert rooms.store.rows() == [], "its barrier is forgotten with it"


async def test_committed_work_of_a_barrier_stays_on_commit(bus: Bus, left: Left) -> None:
    rooms = Rooms(compensatable=True)
    await left.committed_in_barrier(rooms, left.row(compensatable=True))
    async with bus.serve(rooms.subscriber):
        assert (await left.end("commit")).outcome == "commit"
    assert rooms.store.data == {"FW26": left.script.tx}
    assert (rooms.undone, rooms.store.rows()) == ([], [])


async def test_a_barrier_row_that_cannot_be_read_is_left_alone(bus: Bus, left: Left) -> None:
    rooms = Rooms(compensatable=True)
    work = await rooms.calendar.begin(BranchId("rooms", left.script.tx, "calendar-1"))
    await work.enter(1, b"written by a stranger")
    await work.commit()
    async with bus.serve(rooms.subscriber):
        assert await left.log.open_rows("rooms") == ()
    assert len(rooms.store.rows()) == 1


async def test_what_cannot_be_finished_here_is_reported(bus: Bus, left: Left) -> None:
    await left.log.write(left.row(resources=("ledger 1",)))
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        assert bus.health().state == "degraded"
        [trouble] = bus.health().failures
        assert left.script.tx in trouble
        assert "ledger" in trouble
        [row] = await left.log.open_rows("rooms")
    assert row.record.state == "voted"


async def test_a_branch_that_no_row_knows_is_not_touched(bus: Bus, left: Left) -> None:
    """Its owner may be about to write the row."""
    rooms = Rooms()
    await left.prepared(rooms)
    async with bus.serve(rooms.subscriber):
        assert len(rooms.store.prepared) == 1
    assert len(rooms.store.prepared) == 1


# The operator's word


@pytest.mark.parametrize(("word", "decided"), [("commit", "commit"), ("abort", "commit"), ("commit", "abort")])
async def test_an_operators_word_is_carried_out_and_compared_with_the_decision(
    bus: Bus, left: Left, word: Outcome, decided: Outcome
) -> None:
    rooms = Rooms()
    await left.prepared(rooms)
    await left.log.write(left.row(resources=("calendar 1",)))
    async with bus.serve(rooms.subscriber):
        await left.log.resolve("rooms", left.script.tx, word, "ada")
        await until_noted(left, carried_out=True)
        assert not rooms.store.prepared
        assert rooms.store.data == ({"FW26": left.script.tx} if word == "commit" else {})
        given = await left.end(decided)
        assert (given.outcome, given.state) == (word, "ended" if word == decided else "heuristic")
        await until_closed(left)
    [noted] = await left.log.resolutions("rooms")
    assert noted.decided == (decided if word != decided else None)


async def test_a_word_that_was_given_while_nobody_ran_is_carried_out_at_the_start(bus: Bus, left: Left) -> None:
    rooms = Rooms()
    await left.prepared(rooms)
    await left.log.write(left.row(resources=("calendar 1",)))
    await left.log.resolve("rooms", left.script.tx, "abort")
    async with bus.serve(rooms.subscriber):
        await until_noted(left, carried_out=True)
    assert not rooms.store.prepared
    assert rooms.store.data == {}


async def test_nobody_asks_any_more_once_the_operator_has_forgotten(bus: Bus, left: Left) -> None:
    rooms = Rooms()
    await left.prepared(rooms)
    await left.log.write(left.row(resources=("calendar 1",)))
    async with bus.serve(rooms.subscriber):
        await left.log.resolve("rooms", left.script.tx, "abort")
        await until_noted(left, carried_out=True)
        assert _taken_up(bus, left), "it goes on asking for the decision"
        record = left.row().record
        await left.log.close_row("rooms", left.script.tx, msgspec.structs.replace(record, state="aborted"))
        await left.log.withdraw("rooms", left.script.tx)
        await until(lambda: not _taken_up(bus, left))


async def until_noted(left: Left, *, carried_out: bool) -> None:
    async with asyncio.timeout(20):
        while [bool(word.carried_out_at) for word in await left.log.resolutions("rooms")] != [carried_out]:
            await asyncio.sleep(0.01)


async def until_closed(left: Left) -> None:
    async with asyncio.timeout(20):
        while await left.log.open_rows("rooms"):
            await asyncio.sleep(0.01)


async def test_who_heard_the_decision_first_undoes_what_it_finds_in_a_barrier(
    bus: Bus, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another instance of `rooms` dies with its work done and its yes not said, while this one runs."""
    monkeypatch.setattr("tutti.runtime.transactions.recovering.PARTICIPANT_TURN_SECONDS", 0.05)
    monkeypatch.setattr("tutti.runtime.transactions.recovering.JOURNAL_LEASE_SECONDS", 0.05)
    rooms = Rooms(compensatable=True)
    async with bus.serve(rooms.subscriber):
        left.script.decide("abort")
        await until(lambda: left.script.tx in _participants(bus)._over)
        await left.committed_in_barrier(rooms, left.row(compensatable=True))
        await until(lambda: _taken_up(bus, left))
        assert (await left.end("abort")).outcome == "abort"
        assert rooms.undone == ["FW26"]
    assert rooms.store.data == {}


async def test_a_barrier_is_looked_into_before_a_transaction_is_begun_anew(bus: Bus, left: Left) -> None:
    """The prepare of a group's transaction is repeated until somebody votes; by then the work may be done."""
    rooms = Rooms(compensatable=True)
    rooms.subscriber.enrol("team", Meeting, compensatable=True)
    await left.log.beat("rooms-0", seconds=60)
    async with bus.serve(rooms.subscriber):
        await left.committed_in_barrier(rooms, left.row(compensatable=True))
        left.script.group = "team"
        left.script.prepare()
        await until(lambda: left.script.tx not in _participants(bus)._waking)
        [row] = await _rows(left)
        assert (row.instance, row.record.state) == ("rooms-0", "voted")
        assert not _taken_up(bus, left)
    assert rooms.handled == []


@pytest.mark.parametrize("state", ["committed", "aborted"])
async def test_what_had_ended_is_closed_and_its_barrier_forgotten(bus: Bus, left: Left, state: LogState) -> None:
    """Its process died between the last steps: everything was done, and not everything was tidied up."""
    rooms = Rooms(compensatable=True)
    row = left.row(compensatable=True)
    await left.committed_in_barrier(rooms, row)
    if state == "aborted":
        work = await rooms.calendar.begin(BranchId("rooms", left.script.tx, "calendar-1"))
        await work.undo(1)
        work.connection.put("FW26", None)
        await work.commit()
    over = msgspec.structs.replace(row, record=msgspec.structs.replace(row.record, state=state))
    await left.log.write(over)
    async with bus.serve(rooms.subscriber):
        assert await left.log.open_rows("rooms") == ()
        assert rooms.store.rows() == []
    assert rooms.store.data == ({"FW26": left.script.tx} if state == "committed" else {})
    assert rooms.undone == []


async def _rows(left: Left) -> tuple[LogRow, ...]:
    async with asyncio.timeout(10):
        while not (rows := await left.log.open_rows("rooms")):
            await asyncio.sleep(0.01)
    return rows


def _participants(bus: Bus) -> Participants:
    participants = bus.services[0].participants
    assert participants is not None
    return participants

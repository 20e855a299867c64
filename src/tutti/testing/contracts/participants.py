"""What every participants' log promises, as tests: whoever writes one runs them against it.

    class TestMyLog(ParticipantLogContract):
        @pytest.fixture
        async def place(self) -> AsyncIterator[ParticipantLogPlace]:
            async with my_place() as place:     # a new, empty log
                yield place

A place opens the same log as often as it is asked to, and lets its clock go on.
"""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

import msgspec
import pytest

from tutti.errors import Fenced, InvariantViolated, JournalUnreachable
from tutti.journal import Enrolment, LogRow, ParticipantLog
from tutti.model.transaction import Consumed, LogState, ParticipantRecord

__all__ = ["ParticipantLogContract", "ParticipantLogPlace"]

LEASE: Final = 0.3  # seconds: short, because some logs' clocks cannot be moved by a test
EVENT: Final = Consumed("manager", "Booked", 1, 17)


class ParticipantLogPlace(Protocol):
    async def open(self) -> ParticipantLog:
        """A started log, a connection of its own; closed at the end of the test."""

    async def pass_time(self, seconds: float) -> None:
        """Returns when the log's clock has gone on by at least so much."""


def row_of(tx: str, state: LogState = "working", *, subscriber: str = "hotel", **fields: Any) -> LogRow:
    record = ParticipantRecord(tx, "pseudonym", "key", state, 1, 2, 60.0, consumed=(EVENT,), branches=(1,))
    given = {"instance": "i1", "secret": b"\x00seed\xff", "resources": ("r1", "r2"), "payload_key": b"k"} | fields
    return LogRow(subscriber, tx, record, **given)


class _Contract:
    @pytest.fixture
    async def log(self, place: ParticipantLogPlace) -> ParticipantLog:
        return await place.open()


class RowContract(_Contract):
    """write, close_row, open_rows, find, forget."""

    async def test_a_row_is_found_as_it_was_written(self, place: ParticipantLogPlace, log: ParticipantLog) -> None:
        row = row_of("j-1", "voted", events=(b"one", b"\xff\x00"), note="for people")
        await log.write(row)
        other = await place.open()
        assert await other.find("hotel", "j-1") == row
        assert await other.open_rows("hotel") == (row,)
        assert await other.find("hotel", "j-2") is None
        assert await other.find("flight", "j-1") is None
        assert await other.open_rows("flight") == ()

    async def test_writing_again_replaces(self, log: ParticipantLog) -> None:
        for row in (row_of("j-1"), row_of("j-1", note="later"), row_of("j-1", "voted"), row_of("j-1", "committed")):
            await log.write(row)
            await log.write(row)
            assert await log.open_rows("hotel") == (row,)

    async def test_open_rows_come_in_the_order_of_writing(self, log: ParticipantLog) -> None:
        for tx in ("j-3", "j-1", "j-2"):
            await log.write(row_of(tx))
        await log.write(row_of("j-3", "voted"))
        assert [row.tx for row in await log.open_rows("hotel")] == ["j-3", "j-1", "j-2"]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("committed", "working"),
            ("aborted", "voted"),
            ("committed", "aborted"),
            ("aborted", "committed"),
        ],
    )
    async def test_a_row_never_goes_back(self, log: ParticipantLog, first: LogState, second: LogState) -> None:
        await log.write(row_of("j-1", first))
        await log.write(row_of("j-1", second))
        assert await log.find("hotel", "j-1") == row_of("j-1", first)

    async def test_work_that_was_not_asked_for_a_vote_replaces_none(self, log: ParticipantLog) -> None:
        early = row_of("j-1")
        await log.write(row_of("j-1", "voted"))
        await log.write(msgspec.structs.replace(early, record=msgspec.structs.replace(early.record, round=0)))
        assert await log.find("hotel", "j-1") == row_of("j-1", "voted")

    async def test_a_no_takes_the_place_of_a_yes(self, log: ParticipantLog) -> None:
        """It may be said only when it stands here: what was prepared for the yes is rolled back then."""
        refused = row_of("j-1")
        await log.write(row_of("j-1", "voted"))
        for number in (2, 3):  # the round in which the yes was, perhaps, written; and a later one
            no = msgspec.structs.replace(refused, record=msgspec.structs.replace(refused.record, round=number))
            await log.write(no)
            assert await log.find("hotel", "j-1") == no

    async def test_an_ended_row_is_kept_and_no_longer_open(self, log: ParticipantLog) -> None:
        await log.write(row_of("j-1", "voted", events=(b"one",)))
        await log.write(row_of("j-2", "voted"))
        ended = row_of("j-1", "committed").record
        await log.close_row("hotel", "j-1", ended)
        assert [row.tx for row in await log.open_rows("hotel")] == ["j-2"]
        found = await log.find("hotel", "j-1")
        assert found is not None
        assert (found.record, found.secret) == (ended, row_of("j-1").secret), "a repeated decision can be answered"
        assert (found.payload_key, found.events) == (b"", ()), "what nobody needs any more is not kept"

    async def test_an_ended_row_stays_as_it_is(self, log: ParticipantLog) -> None:
        await log.write(row_of("j-1", "voted"))
        await log.close_row("hotel", "j-1", row_of("j-1", "committed").record)
        before = await log.find("hotel", "j-1")
        await log.close_row("hotel", "j-1", row_of("j-1", "aborted").record)
        await log.write(row_of("j-1", "voted"))
        with pytest.raises(Fenced):  # nobody else may believe that its vote stands there
            await log.write(row_of("j-1", "voted", instance="i2"))
        assert await log.find("hotel", "j-1") == before
        assert await log.open_rows("hotel") == ()

    async def test_ending_what_was_never_written_writes_nothing(self, log: ParticipantLog) -> None:
        await log.close_row("hotel", "j-1", row_of("j-1", "aborted").record)
        assert await log.find("hotel", "j-1") is None

    async def test_a_row_of_another_transaction_is_a_bug(self, log: ParticipantLog) -> None:
        with pytest.raises(InvariantViolated, match="holds the record of j-2"):
            await log.write(msgspec.structs.replace(row_of("j-1"), record=row_of("j-2").record))

    async def test_of_one_written_at_once_the_furthest_stays(
        self, place: ParticipantLogPlace, log: ParticipantLog
    ) -> None:
        logs = [log, await place.open()]
        for number in range(10):
            tx = f"j-{number}"
            early = row_of(tx)
            early = msgspec.structs.replace(early, record=msgspec.structs.replace(early.record, round=0))
            rows = [early, row_of(tx, "voted")] * 2
            await asyncio.gather(*(logs[n % 2].write(row) for n, row in enumerate(rows)))
            assert await log.find("hotel", tx) == row_of(tx, "voted")

    async def test_ended_rows_are_forgotten_when_they_are_old(
        self, place: ParticipantLogPlace, log: ParticipantLog
    ) -> None:
        for tx in ("j-1", "j-2", "j-3"):
            await log.write(row_of(tx, "voted"))
        await log.park("hotel", "j-2", EVENT, "no answer")
        await log.close_row("hotel", "j-1", row_of("j-1", "committed").record)
        await log.close_row("hotel", "j-2", row_of("j-2", "aborted").record)
        assert await log.forget((await log.now()) - 60.0) == 0
        await place.pass_time(0.01)
        assert await log.forget(await log.now()) == 1
        assert await log.find("hotel", "j-1") is None
        assert await log.find("hotel", "j-2") is not None, "something of it is parked"
        assert await log.find("hotel", "j-3") is not None, "it has not ended"
        await log.unpark("hotel", "j-2", EVENT)
        assert await log.forget(await log.now()) == 1
        assert await log.forget(await log.now()) == 0


class InstanceContract(_Contract):
    """beat, release, take_over and the fence."""

    async def test_rows_of_the_living_are_not_taken(self, log: ParticipantLog) -> None:
        await log.beat("i1", seconds=60.0)
        await log.beat("i2", seconds=60.0)
        await log.write(row_of("j-1", "voted"))
        assert await log.take_over("hotel", "i2") == ()
        await log.write(row_of("j-1", "voted", note="still mine"))

    async def test_rows_of_the_silent_are_taken_once(self, place: ParticipantLogPlace, log: ParticipantLog) -> None:
        await log.beat("i1", seconds=LEASE)
        await log.write(row_of("j-1", "voted"))
        await log.write(row_of("j-2"))
        await log.write(row_of("j-3", subscriber="flight"))
        await log.write(row_of("j-4", "voted"))
        await log.close_row("hotel", "j-4", row_of("j-4", "committed").record)
        await place.pass_time(LEASE)
        await log.beat("i2", seconds=60.0)
        taken = await log.take_over("hotel", "i2")
        assert taken == (row_of("j-1", "voted", instance="i2"), row_of("j-2", instance="i2"))
        assert await log.open_rows("hotel") == taken
        assert await log.take_over("hotel", "i2") == (), "only what was another's is told"
        with pytest.raises(Fenced, match="i2 acts for hotel in j-1 now"):
            await log.write(row_of("j-1", "committed"))
        await log.write(row_of("j-1", "committed", instance="i2"))

    async def test_of_racers_one_gets_a_row(self, place: ParticipantLogPlace, log: ParticipantLog) -> None:
        logs = [log, await place.open(), await place.open()]
        for number in range(12):
            await log.write(row_of(f"j-{number}", "voted", instance="dead"))
        for n, one in enumerate(logs):
            await one.beat(f"i{n}", seconds=60.0)
        taken = await asyncio.gather(*(one.take_over("hotel", f"i{n}") for n, one in enumerate(logs)))
        assert sorted(row.tx for rows in taken for row in rows) == sorted(f"j-{number}" for number in range(12))
        for row in await log.open_rows("hotel"):
            assert row in [given for rows in taken for given in rows]

    async def test_who_does_not_live_takes_nothing(self, log: ParticipantLog) -> None:
        await log.write(row_of("j-1", instance="dead"))
        assert await log.take_over("hotel", "i2") == ()
        await log.beat("i2", seconds=60.0)
        assert len(await log.take_over("hotel", "i2")) == 1

    async def test_a_released_lease_need_not_be_waited_for(self, log: ParticipantLog) -> None:
        await log.beat("i1", seconds=60.0)
        await log.beat("i2", seconds=60.0)
        await log.write(row_of("j-1", "voted"))
        await log.release("i1")
        assert [row.tx for row in await log.take_over("hotel", "i2")] == ["j-1"]

    async def test_a_beat_extends_and_never_shortens(self, place: ParticipantLogPlace, log: ParticipantLog) -> None:
        long = await log.beat("i1", seconds=60.0)
        assert await log.beat("i1", seconds=1.0) == long
        await place.pass_time(0.01)
        assert await log.beat("i1", seconds=60.0) > long

    async def test_forgetting_keeps_the_leases_that_count(self, log: ParticipantLog) -> None:
        await log.beat("i1", seconds=60.0)
        await log.beat("i2", seconds=60.0)
        await log.write(row_of("j-1"))
        await log.forget(await log.now())
        assert await log.take_over("hotel", "i2") == ()


class QueueContract(_Contract):
    """park, parked, unpark."""

    async def test_what_is_parked_is_listed_until_it_is_taken(
        self, place: ParticipantLogPlace, log: ParticipantLog
    ) -> None:
        second = Consumed("abc", "Booked", 2, 2**40)
        await log.park("hotel", "j-1", EVENT, "the hotel's database is gone")
        await log.park("hotel", "j-1", second, "x" * 10_000)
        await log.park("hotel", "j-1", EVENT, "again")
        await log.park("flight", "j-1", EVENT, "no")
        other = await place.open()
        found = await other.parked("hotel")
        assert [(p.tx, p.event) for p in found] == [("j-1", EVENT), ("j-1", second)]
        assert found[0].reason == "the hotel's database is gone"
        assert 1_000 < len(found[1].reason) < 10_000, "a reason has a limit"
        assert found[0].parked_at > 0
        assert [p.subscriber for p in await log.parked()] == ["hotel", "hotel", "flight"]
        assert await other.unpark("hotel", "j-1", EVENT)
        assert not await other.unpark("hotel", "j-1", EVENT)
        assert [p.event for p in await log.parked("hotel")] == [second]


class OperatorContract(_Contract):
    """resolve, resolutions, carried_out, withdraw; and what an operator looks at."""

    async def test_the_first_word_stands_until_it_is_withdrawn(
        self, place: ParticipantLogPlace, log: ParticipantLog
    ) -> None:
        word = await log.resolve("hotel", "j-1", "commit", "ada")
        assert (word.outcome, word.by, word.carried_out_at, word.decided) == ("commit", "ada", 0.0, None)
        assert word.resolved_at > 0
        other = await place.open()
        assert await other.resolve("hotel", "j-1", "abort", "bob") == word
        flight = await other.resolve("flight", "j-1", "abort")
        assert await log.resolutions("hotel") == (word,)
        assert set(await log.resolutions()) == {word, flight}
        assert await log.withdraw("hotel", "j-1")
        assert not await other.withdraw("hotel", "j-1")
        assert await log.resolutions() == (flight,)

    async def test_what_became_of_a_word_is_noted(self, log: ParticipantLog) -> None:
        await log.resolve("hotel", "j-1", "commit")
        await log.carried_out("hotel", "j-1")
        [first] = await log.resolutions()
        assert first.carried_out_at > 0
        await log.carried_out("hotel", "j-1", "abort")
        await log.carried_out("hotel", "j-1")
        await log.carried_out("hotel", "j-2", "abort")
        [second] = await log.resolutions()
        assert second == msgspec.structs.replace(first, decided="abort")

    async def test_a_row_with_a_word_about_it_is_not_forgotten(
        self, place: ParticipantLogPlace, log: ParticipantLog
    ) -> None:
        await log.write(row_of("j-1", "voted"))
        await log.resolve("hotel", "j-1", "commit")
        await log.close_row("hotel", "j-1", row_of("j-1", "committed").record)
        await place.pass_time(0.01)
        assert await log.forget(await log.now()) == 0
        await log.withdraw("hotel", "j-1")
        assert await log.forget(await log.now()) == 1

    async def test_rows_are_found_whoever_they_belong_to(self, log: ParticipantLog) -> None:
        hotel, flight, other = row_of("j-1", "voted"), row_of("j-1", subscriber="flight"), row_of("j-2")
        for row in (hotel, flight, other):
            await log.write(row)
        assert await log.rows_of("j-1") == (flight, hotel)
        assert await log.open_rows() == (hotel, flight, other)
        await log.close_row("flight", "j-1", row_of("j-1", "aborted").record)
        assert [row.subscriber for row in await log.rows_of("j-1")] == ["flight", "hotel"]
        assert await log.open_rows() == (hotel, other)

    async def test_one_transaction_alone_is_taken_over(self, place: ParticipantLogPlace, log: ParticipantLog) -> None:
        await log.write(row_of("j-1", "voted", instance="dead"))
        await log.write(row_of("j-2", "voted", instance="dead"))
        await log.beat("i2", seconds=60.0)
        await log.beat("i3", seconds=LEASE)
        assert await log.living() == {"i2", "i3"}
        assert [row.tx for row in await log.take_over("hotel", "i2", tx="j-2")] == ["j-2"]
        assert {row.tx: row.instance for row in await log.open_rows()} == {"j-1": "dead", "j-2": "i2"}
        await place.pass_time(LEASE)
        assert await log.living() == {"i2"}


class EnrolmentContract(_Contract):
    """enrol, enrolment, resign."""

    async def test_the_first_enrolment_stays_until_it_is_resigned(
        self, place: ParticipantLogPlace, log: ParticipantLog
    ) -> None:
        first = Enrolment("desk", "hotel", "p1", b"\x00sign", b"\xffwrap")
        second = Enrolment("desk", "hotel", "p2", b"s", b"w")
        assert await log.enrolment("desk", "hotel") is None
        assert await log.enrol(first) == first
        other = await place.open()
        assert await other.enrol(second) == first
        assert await other.enrolment("desk", "hotel") == first
        assert await other.enrolment("desk", "flight") is None
        assert await other.resign("desk", "hotel")
        assert not await log.resign("desk", "hotel")
        assert await log.enrolment("desk", "hotel") is None
        assert await log.enrol(second) == second

    async def test_of_racers_one_is_enrolled(self, place: ParticipantLogPlace, log: ParticipantLog) -> None:
        logs = [log, await place.open()]
        given = [Enrolment("desk", "hotel", f"p{n}", b"s", b"w") for n in range(8)]
        found = await asyncio.gather(*(logs[n % 2].enrol(one) for n, one in enumerate(given)))
        assert len({one.pseudonym for one in found}) == 1


class LifeContract(_Contract):
    async def test_a_closed_log_says_so_and_can_be_started_again(self, log: ParticipantLog) -> None:
        await log.write(row_of("j-1"))
        await log.close()
        await log.close()
        with pytest.raises(JournalUnreachable):
            await log.find("hotel", "j-1")
        await log.start()
        assert await log.find("hotel", "j-1") == row_of("j-1")


class ParticipantLogContract(
    RowContract, InstanceContract, QueueContract, OperatorContract, EnrolmentContract, LifeContract
):
    """All of it."""

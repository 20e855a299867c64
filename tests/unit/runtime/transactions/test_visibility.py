"""The log in the order of commits: what is in it, under which numbers, and what is told of what is gone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import tutti
from tests.unit.runtime.transactions.staged import Office
from tutti.bus.port import FromSequence, Record
from tutti.limits import COMMITTED_FETCH_MAX_COUNT
from tutti.model.status import Span
from tutti.runtime.transactions.visibility import SCALE, CommittedLog, CommittedReader, CommittedRecord, Named
from tutti.testing.kit import BusKit

EVENTS = "tutti-events-events"


class Invited(tutti.Event):
    number: int


class Other(tutti.Event):
    number: int


class Elsewhere(tutti.Event, stream="rooms"):
    number: int


class Sight:
    """What a reader from a position on gets now."""

    def __init__(self, bus: BusKit) -> None:
        context = bus.context
        self.missing: list[tuple[int, str]] = []
        self.log = CommittedLog(
            context.transport,
            context.layout,
            context.clock,
            stream="events",
            type_token="Invited",
            missing=lambda count, what: self.missing.append((count, what)),
        )

    async def reader(self, begin: int = 1, *, partition: str = "*") -> CommittedReader:
        subjects = [f"tutti.event.events.Invited._.{partition}"]
        return await self.log.reader("tutti-status", subjects, FromSequence(begin))

    async def all(self, begin: int = 1, *, partition: str = "*") -> list[Record]:
        reader = await self.reader(begin, partition=partition)
        found: list[Record] = []
        while batch := await reader.batch(100, wait=0.0):
            found += batch
        await reader.close()
        return found


@pytest.fixture
async def sight(tutti_bus: BusKit) -> Sight:
    await tutti_bus.advertise(Invited, Other, Elsewhere)
    return Sight(tutti_bus)


def numbers(records: Sequence[Record]) -> list[tuple[int, int]]:
    return [divmod(record.sequence, SCALE) for record in records]


def test_numbers_go_through_all_streams_of_a_status() -> None:
    spans = (Span("a", ((1, 3),)), Span("events", ((5, 6), (9, 9))), Span("z", ((1, 1),)))
    named = Named(spans, "events", 7 * SCALE, 1)
    assert (named.count, named.first, named.last, named.sequences()) == (3, 5, 9, [5, 6, 9])
    assert [named.number(n) - 7 * SCALE for n in (5, 6, 9)] == [3, 4, 5]
    assert [named.number(n) for n in (4, 7, 8, 10)] == [0] * 4


@pytest.mark.parametrize(("skipped", "left"), [(3, [5, 6, 9]), (4, [6, 9]), (5, [9]), (6, []), (99, [])])
def test_what_was_handed_out_is_not_named_again(skipped: int, left: list[int]) -> None:
    spans = (Span("a", ((1, 3),)), Span("events", ((5, 6), (9, 9))))
    named = Named(spans, "events", 7 * SCALE, 7 * SCALE + skipped)
    assert named.sequences() == left
    assert [named.number(n) - 7 * SCALE for n in left] == [5 - len(left) + 1 + at for at in range(len(left))]


async def test_commits_come_in_the_order_of_their_statuses(sight: Sight, office: Office) -> None:
    first, second = await office.begin(), await office.begin()
    await first.publish(Invited(1), Elsewhere(1), Other(1))
    await second.publish(Invited(2))
    await first.publish(Invited(3))
    assert await sight.all() == []
    await second.commit()
    await first.commit()
    records = await sight.all()
    assert numbers(records) == [(1, 0), (2, 0), (2, 2)]
    assert [(r.stream, r.place) for r in records if isinstance(r, CommittedRecord)] == [
        (EVENTS, 3),
        (EVENTS, 1),
        (EVENTS, 4),
    ]


async def test_aborted_and_private_ones_are_not_seen(sight: Sight, office: Office) -> None:
    aborted, private = await office.begin(), await office.begin(scope="private")
    await aborted.publish(Invited(1))
    await private.publish(Invited(2))
    await aborted.abort()
    await private.commit()
    assert await sight.all() == []
    assert sight.missing == []


@pytest.mark.parametrize(
    "change", [{"ce-txscope": "private"}, {"ce-txscope": ""}, {"ce-datacontenttype": "application/tutti-sealed"}]
)
async def test_what_does_not_say_that_it_is_public_is_not(
    sight: Sight, office: Office, change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    staged, append = await office.begin(), office.transport.append
    monkeypatch.setattr(
        office.transport, "append", lambda subject, headers, *a, **o: append(subject, {**headers, **change}, *a, **o)
    )
    await staged.publish(Invited(1))
    monkeypatch.undo()
    await staged.commit()
    assert (await sight.all(), sight.missing) == ([], [])


async def test_only_the_partitions_that_are_asked_for_come(sight: Sight, office: Office) -> None:
    staged = await office.begin()
    for key in "abcdefgh":
        await staged.publish(Invited(1), key=key)
    await staged.commit()
    every = await sight.all()
    wanted = every[0].subject.split(".")[5]
    expected = [record for record in every if record.subject.split(".")[5] == wanted]
    assert 0 < len(expected) < len(every)
    assert await sight.all(partition=wanted) == expected


@pytest.mark.parametrize("count", [COMMITTED_FETCH_MAX_COUNT, COMMITTED_FETCH_MAX_COUNT + 1, 1_300])
async def test_a_reader_begins_anywhere_in_a_status(sight: Sight, office: Office, count: int) -> None:
    staged = await office.begin()
    await staged.publish(*(Invited(n) for n in range(count)))
    await staged.commit()
    for index in (0, 1, count // 2, count - 1, count):
        assert numbers(await sight.all(SCALE + index)) == [(1, n) for n in range(index, count)]
    assert sight.missing == []


async def test_very_many_events_are_found_through_manifests(tutti_bus: BusKit, sight: Sight, office: Office) -> None:
    staged, other = await office.begin(), await office.begin()
    for number in range(6_000):
        await staged.publish(Invited(number))
        await other.publish(Other(number))
    await staged.commit()
    info = await tutti_bus.context.transport.stream_info("tutti-manifests")
    assert info is not None
    assert info.messages > 1
    assert numbers(await sight.all()) == [(1, n) for n in range(6_000)]


@pytest.mark.parametrize("count", [10, 100])
async def test_events_that_are_gone_are_told_and_the_rest_comes(sight: Sight, office: Office, count: int) -> None:
    staged = await office.begin()
    await staged.publish(*(Invited(n) for n in range(count)))
    await staged.commit()
    await office.transport.purge(EVENTS, below=4)
    await office.transport.remove(EVENTS, 7)
    assert numbers(await sight.all()) == [(1, n) for n in range(3, count) if n != 6]
    ((missing, what),) = sight.missing
    assert missing == 4
    assert f"4 events of {staged.tx}, committed at 1 of tutti-status" in what


async def test_another_record_in_an_events_place_is_not_taken_for_it(
    tutti_bus: BusKit, sight: Sight, office: Office
) -> None:
    ours, theirs = await office.begin(), await office.begin()
    await ours.publish(Invited(1))
    ours.sequences["events"] |= set(await theirs.publish(Invited(2)))
    await tutti_bus.publish(Invited(3))
    ours.sequences["events"].add(3)
    await ours.commit()
    assert numbers(await sight.all()) == [(1, 0)]
    assert [count for count, _ in sight.missing] == [2]


async def test_a_manifest_that_is_gone_counts_all_of_its_events(sight: Sight, office: Office) -> None:
    staged = await office.begin()
    staged.sequences["events"] = set(range(1, 40_000, 2))
    await staged.decide()
    await office.transport.purge("tutti-manifests", below=2)
    await office.relay.send()
    assert await sight.all() == []
    assert [count for count, _ in sight.missing] == [20_000]


async def test_an_unreadable_status_is_told(sight: Sight, office: Office) -> None:
    await office.transport.append("tutti.status.0.somebody", {}, b"?", timeout=1.0)
    staged = await office.begin()
    await staged.publish(Invited(1))
    await staged.commit()
    assert numbers(await sight.all()) == [(2, 0)]
    assert [what for _, what in sight.missing] == ["the status 1 is unreadable, and what it made visible is not known"]


async def test_statuses_that_are_gone_are_told_to_whoever_had_read_before_them(sight: Sight, office: Office) -> None:
    for number in range(4):
        staged = await office.begin()
        await staged.publish(Invited(number))
        await staged.commit()
    await office.transport.purge("tutti-status", below=4)
    assert numbers(await sight.all()) == [(4, 0)]
    assert sight.missing == []  # who begins with the earliest gets what there is
    assert numbers(await sight.all(2 * SCALE)) == [(4, 0)]
    ((missing, what),) = sight.missing
    assert (missing, "the statuses 2 to 3 are gone" in what) == (2, True)


async def test_the_horizon_never_passes_what_was_not_handed_out(sight: Sight, office: Office) -> None:
    reader = await sight.reader()
    assert await reader.horizon() == SCALE - 1
    for _ in range(2):
        staged = await office.begin()
        await staged.publish(Invited(1), Invited(2))
        await staged.commit()
    private = await office.begin(scope="private")
    await private.commit()
    assert await reader.horizon() == SCALE - 1
    (record,) = await reader.batch(1)
    assert record.sequence == SCALE
    assert await reader.horizon() == SCALE
    assert len(await reader.batch(100)) == 1
    assert SCALE < await reader.horizon() < 2 * SCALE
    assert len(await reader.batch(100)) == 2
    assert await reader.batch(100, wait=0.0) == ()
    assert await reader.horizon() == 4 * SCALE - 1
    await reader.close()


async def test_after_a_failure_a_reader_goes_on_where_it_was(
    sight: Sight, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = await office.begin()
    await staged.publish(Invited(1), Invited(2))
    await staged.commit()
    reader = await sight.reader()

    async def unreachable(*_: object) -> None:
        raise tutti.Unreachable("away")

    monkeypatch.setattr(office.transport, "fetch", unreachable)
    with pytest.raises(tutti.Unreachable):
        await reader.batch(10)
    monkeypatch.undo()
    assert numbers(await reader.batch(10)) == [(1, 0), (1, 1)]
    await reader.close()


async def test_a_log_of_statuses_that_was_deleted_is_made_anew(tutti_bus: BusKit, sight: Sight) -> None:
    tutti_bus.cluster.delete("tutti-status")
    info = await sight.log.stream_info("tutti-status")
    assert info is not None
    assert (info.first, info.last) == (SCALE, SCALE - 1)

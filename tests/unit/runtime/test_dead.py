"""Dead letters keep everything, whatever it is, until somebody decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import tutti
from tutti.bus.port import Record
from tutti.limits import EVENT_MAX_BYTES, REASON_MAX_CHARACTERS, TRACEBACK_MAX_CHARACTERS
from tutti.model.envelope import Envelope
from tutti.runtime.dead import RECEIVED, DeadLetter, decoded, encoded
from tutti.testing.kit import BusKit

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def letter(
    data: bytes = b"{}",
    *,
    reason: str = "ValueError: no",
    traceback: str = "",
    subscriber: str = "desk",
    subscription: str = "trade",
    sequence: int = 5,
    headers: dict[str, str] | None = None,
    buried_at: datetime = MOMENT,
    replay: int = 0,
) -> DeadLetter:
    return DeadLetter.of(
        Record("tutti.queue.work.Step", headers or {"ce-id": "7"}, data, sequence),
        Envelope(id="7", source="/a/1", type="Step"),
        subscriber=subscriber,
        subscription=subscription,
        stream="tutti-events-events",
        reason=reason,
        attempts=3,
        traceback=traceback,
        buried_at=buried_at,
        replay=replay,
    )


@pytest.mark.parametrize("data", [b"", b"{}", b"\n\n", bytes(range(256)), "€\n".encode()])
def test_the_data_survive_byte_for_byte(data: bytes) -> None:
    assert decoded(encoded(letter(data))).payload == data


async def test_a_letter_is_kept_and_found_by_its_number(tutti_bus: BusKit) -> None:
    number = await tutti_bus.dead.bury(letter(b"\xff", traceback="line 1"), timeout=1)
    found = await tutti_bus.dead.get(number)
    assert (found.number, found.reason, found.attempts, found.payload) == (number, "ValueError: no", 3, b"\xff")
    assert (found.event_id, found.event_type, found.source) == ("7", "Step", "/a/1")
    assert (found.stream, found.sequence, found.traceback) == ("tutti-events-events", 5, "line 1")
    assert found.record().headers == {"ce-id": "7"}


async def test_the_same_event_of_the_same_subscription_is_buried_once(tutti_bus: BusKit) -> None:
    first = await tutti_bus.dead.bury(letter(), timeout=1)
    later = letter(buried_at=MOMENT + timedelta(seconds=30))  # it was handled again, because its position was lost
    assert await tutti_bus.dead.bury(later, timeout=1) == first
    for other in (letter(sequence=6), letter(subscriber="audit"), letter(subscription="other"), letter(replay=7)):
        assert await tutti_bus.dead.bury(other, timeout=1) != first
    assert len(await tutti_bus.letters()) == 5


async def test_best_effort_events_are_buried_each(tutti_bus: BusKit) -> None:
    for second in range(2):
        await tutti_bus.dead.bury(letter(sequence=0, buried_at=MOMENT + timedelta(seconds=second)), timeout=1)
    assert len(await tutti_bus.letters()) == 2


async def test_an_event_that_fails_again_after_its_letter_was_dropped_is_buried_again(tutti_bus: BusKit) -> None:
    await tutti_bus.dead.drop(await tutti_bus.dead.bury(letter(), timeout=1))
    again = letter(buried_at=MOMENT + timedelta(seconds=30))
    number = await tutti_bus.dead.bury(again, timeout=1)
    assert [found.number for found in await tutti_bus.letters()] == [number]


async def test_a_replay_that_fails_is_a_new_letter_each_time(tutti_bus: BusKit) -> None:
    class Step(tutti.Event):
        number: int

    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=1))

    @app.on(Step)
    async def step(event: Step) -> None:
        raise ValueError("no")

    await tutti_bus.advertise(Step)
    async with tutti_bus.serve(app):
        await tutti_bus.publish(Step(1))
        await tutti_bus.settle()
        numbers = []
        for _ in range(3):
            (found,) = await tutti_bus.letters()
            numbers.append(found.number)
            assert (found.stream, found.sequence) == ("tutti-events-events", 1)
            await tutti_bus.dead.replay(found.number)
            await tutti_bus.settle()
    assert numbers == sorted(set(numbers))
    assert len(await tutti_bus.letters()) == 1


async def test_letters_are_listed_oldest_first_and_by_subscriber(tutti_bus: BusKit) -> None:
    assert await tutti_bus.letters() == []
    for sequence, name in enumerate(("desk", "audit", "desk"), 1):
        await tutti_bus.dead.bury(letter(subscriber=name, sequence=sequence), timeout=1)
    assert [found.sequence for found in await tutti_bus.letters()] == [1, 2, 3]
    assert [found.sequence async for found in tutti_bus.dead.each("desk")] == [1, 3]


async def test_the_largest_event_fits_and_the_end_of_its_traceback(tutti_bus: BusKit) -> None:
    data = bytes(EVENT_MAX_BYTES)
    found = await tutti_bus.dead.get(await tutti_bus.dead.bury(letter(data, traceback="x" * 99_999), timeout=1))
    assert found.payload == data
    assert len(found.traceback) == TRACEBACK_MAX_CHARACTERS + 1


async def test_a_foreign_giant_is_named_though_not_kept(tutti_bus: BusKit) -> None:
    number = await tutti_bus.dead.bury(letter(bytes(2_000_000)), timeout=1)
    assert not (await tutti_bus.dead.get(number)).whole
    with pytest.raises(tutti.TuttiError, match="tutti-events-events/5"):
        await tutti_bus.dead.replay(number)


async def test_whatever_an_exception_says_can_be_stored(tutti_bus: BusKit) -> None:
    odd = letter(reason="half \ud800" + "y" * 99_999, traceback="\udfff", headers={"ce-id": "\ud800"})
    found = await tutti_bus.dead.get(await tutti_bus.dead.bury(odd, timeout=1))
    assert found.reason.startswith("half \\ud800yyy")
    assert len(found.reason) == REASON_MAX_CHARACTERS
    assert found.headers == {"ce-id": "\\ud800"}


async def test_a_dropped_letter_is_gone(tutti_bus: BusKit) -> None:
    number = await tutti_bus.dead.bury(letter(), timeout=1)
    await tutti_bus.dead.drop(number)
    for act in (tutti_bus.dead.get, tutti_bus.dead.drop, tutti_bus.dead.replay):
        with pytest.raises(tutti.TuttiError, match=f"no dead letter {number}"):
            await act(number)


async def test_a_replay_waits_in_the_subscriber_s_queue_until_it_comes_back(tutti_bus: BusKit) -> None:
    await tutti_bus.dead.replay(await tutti_bus.dead.bury(letter(b"\x00"), timeout=1))
    assert await tutti_bus.letters() == []
    (taken,) = await tutti_bus.context.transport.take("replay-desk", wait=0)
    assert decoded(taken.record.data).payload == b"\x00"


async def test_what_was_received_is_replayed_into_its_queue(tutti_bus: BusKit) -> None:
    number = await tutti_bus.dead.bury(letter(b"zz", subscriber="work", subscription=RECEIVED), timeout=1)
    await tutti_bus.dead.replay(number)
    (taken,) = await tutti_bus.context.transport.take("work", wait=0)
    assert (taken.record.data, taken.record.headers["ce-id"]) == (b"zz", "7")


async def test_what_somebody_else_wrote_among_the_letters_hides_none(tutti_bus: BusKit) -> None:
    transport = tutti_bus.context.transport
    await transport.append("tutti.dead.desk.trade", {}, b"hello?", timeout=1)
    (strange,) = await tutti_bus.letters()
    assert (strange.payload, strange.subscriber) == (b"hello?", "?")
    with pytest.raises(tutti.TuttiError, match="holds no event"):
        await tutti_bus.dead.replay(strange.number)
    await tutti_bus.dead.drop(strange.number)
    assert await tutti_bus.letters() == []

"""Two ends over a wire that loses, repeats and reorders: each thing once, in order, and silence is noticed."""

from __future__ import annotations

import random

import pytest

from tutti.control.conversation import (
    TRANSITIONS,
    Cause,
    Conversation,
    Deliver,
    Effect,
    Emit,
    Heard,
    Hung,
    Lost,
    Packet,
    Say,
    Stage,
)
from tutti.control.table import Row
from tutti.limits import CONVERSATION_BEAT_SECONDS, CONVERSATION_LOST_SECONDS, CONVERSATION_REPEAT_SECONDS
from tutti.model.messages import Ticked, WakeAt

TX = "j1-r1-1"


def packets(effects: list[Effect]) -> list[Packet]:
    return [effect.packet for effect in effects if isinstance(effect, Emit)]


def items(effects: list[Effect]) -> list[bytes]:
    return [effect.item for effect in effects if isinstance(effect, Deliver)]


def wake(effects: list[Effect]) -> float:
    [time] = [effect.time for effect in effects if isinstance(effect, WakeAt)]
    assert time is not None
    return time


def test_what_is_said_is_delivered_and_confirmed() -> None:
    here, there = Conversation(TX, 0.0), Conversation(TX, 0.0)
    [packet] = packets(here.step(Say(b"a", 1.0)))
    heard = there.step(Heard(packet, 1.0))
    assert items(heard) == [b"a"]
    [confirmation] = packets(heard)
    here.step(Heard(confirmation, 1.0))
    quiet = here.step(Ticked(1.0 + CONVERSATION_REPEAT_SECONDS))
    assert packets(quiet) == [], "confirmed is not repeated"


def test_what_is_lost_is_repeated_with_growing_pauses() -> None:
    here = Conversation(TX, 0.0)
    here.step(Say(b"a", 0.0))
    here.step(Say(b"b", 0.01))
    times: list[float] = []
    now = wake(here.step(Say(b"c", 0.02)))
    while len(times) < 3:
        effects = here.step(Ticked(now))
        times += [now for packet in packets(effects) if packet.items]
        now = wake(effects)
    assert times == pytest.approx([0.1, 0.3, 0.7])


def test_a_packet_that_comes_twice_or_too_early_delivers_nothing_twice() -> None:
    here, there = Conversation(TX, 0.0), Conversation(TX, 0.0)
    first, second = packets(here.step(Say(b"a", 0.0)) + here.step(Say(b"b", 0.0)))
    assert items(there.step(Heard(second, 0.0))) == [], "the one before it is missing"
    assert items(there.step(Heard(first, 0.0))) == [b"a"]
    assert items(there.step(Heard(first, 0.0))) == []
    [again] = packets(here.step(Ticked(1.0)))
    assert again.items == (b"a", b"b")
    assert items(there.step(Heard(again, 1.0))) == [b"b"]


def test_silence_is_told_once_and_may_end() -> None:
    here = Conversation(TX, 0.0)
    lost = here.step(Ticked(CONVERSATION_LOST_SECONDS))
    assert Lost() in lost
    assert Lost() not in here.step(Ticked(2 * CONVERSATION_LOST_SECONDS))
    here.step(Heard(Packet(TX, 0), 20.0))
    assert Lost() in here.step(Ticked(20.0 + CONVERSATION_LOST_SECONDS))


def test_something_is_said_once_in_a_while() -> None:
    here = Conversation(TX, 0.0)
    assert packets(here.step(Ticked(CONVERSATION_BEAT_SECONDS / 2))) == []
    assert packets(here.step(Ticked(CONVERSATION_BEAT_SECONDS))) == [Packet(TX, 0)]


def test_who_hung_up_says_nothing_more() -> None:
    here = Conversation(TX, 0.0)
    here.step(Say(b"a", 0.0))
    assert here.step(Hung()) == [WakeAt(None)]
    assert here.step(Say(b"b", 1.0)) == []
    assert here.step(Ticked(100.0)) == []
    here.check()


@pytest.mark.parametrize("packet", [Packet("another", 0, 1, (b"x",)), Packet(TX, 5)])
def test_what_cannot_be_is_passed_over(packet: Packet) -> None:
    here = Conversation(TX, 0.0)
    assert items(here.step(Heard(packet, 2.9))) == []
    assert Lost() in here.step(Ticked(CONVERSATION_LOST_SECONDS)), "it counts for nothing"


def run(seed: int) -> tuple[list[bytes], list[bytes], int]:
    """Both say fifty things over a bad wire; what each end was told, in order, and how often one was called lost."""
    chance, now, lost = random.Random(seed), 0.0, 0
    ends = [Conversation(TX, 0.0), Conversation(TX, 0.0)]
    told: list[list[bytes]] = [[], []]
    wire: list[tuple[float, int, Packet]] = []
    wakes = [0.0, 0.0]

    def carry_out(end: int, effects: list[Effect]) -> None:
        nonlocal lost
        for effect in effects:
            match effect:
                case Emit():
                    copies = 0 if now < 20 and chance.random() < 0.4 else chance.choice([1, 1, 2])
                    wire.extend((now + chance.random() * 0.5, 1 - end, effect.packet) for _ in range(copies))
                case Deliver():
                    told[end].append(effect.item)
                case Lost():
                    lost += 1
                case WakeAt():
                    wakes[end] = effect.time or 0.0

    due = sorted((chance.random() * 10, end) for end in (0, 1) for _ in range(50))
    said = [0, 0]
    while now < 40:
        now += 0.01
        while due and due[0][0] <= now:
            _, end = due.pop(0)
            said[end] += 1
            carry_out(end, ends[end].step(Say(str(said[end]).encode(), now)))
        for arrival in sorted(wire, key=lambda found: found[0]):
            if arrival[0] <= now:
                wire.remove(arrival)
                carry_out(arrival[1], ends[arrival[1]].step(Heard(arrival[2], now)))
        for end in (0, 1):
            if wakes[end] <= now:
                carry_out(end, ends[end].step(Ticked(now)))
            ends[end].check()
    return told[0], told[1], lost


@pytest.mark.parametrize("seed", range(8))
def test_over_a_bad_wire_everything_comes_once_and_in_order(seed: int) -> None:
    expected = [str(number).encode() for number in range(1, 51)]
    one, two, _ = run(seed)
    assert one == expected
    assert two == expected


def test_the_guard_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(0)[2] == 0
    monkeypatch.setitem(TRANSITIONS[Stage.TALKING], Cause.SILENCE, Row(Stage.ALONE))
    assert run(0)[2] > 0, "without it everybody is lost at once"

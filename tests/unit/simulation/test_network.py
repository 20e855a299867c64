"""How messages travel."""

from __future__ import annotations

import pytest

from tests.unit.simulation.quiet import ground, network, run
from tutti.model.messages import MANAGER, NOBODY, Close, Decide, Inquiry, Received, Send, To, WakeAt
from tutti.simulation.facts import Stirred
from tutti.simulation.faults import Faults, Partition
from tutti.simulation.network import STRANGER, stirred

TX = "j1-1"
CLOSE = Send(Close(TX, 1, 1), To.MEMBERS)


def test_a_message_reaches_the_audience_once_with_what_the_manager_signed() -> None:
    world = ground()
    net, (p0, s0, s1) = network(world, "p0", "s0", "s1")
    net.audience[TX] = {"s0": None, "p0": None}
    net.cast("p0", CLOSE, MANAGER)
    run(world)
    (packet,) = s0.heard
    assert (packet.message, packet.signer) == (CLOSE.message, MANAGER)
    assert packet.verbatim in net.signed
    assert p0.heard == s1.heard == [], "not to itself, not to others"


def test_what_a_member_says_is_not_in_the_managers_name() -> None:
    world = ground()
    net, (_, s0) = network(world, "p0", "s0")
    net.hosts[TX] = {"s0": None}
    net.cast("p0", Send(Close(TX, 1, 1), To.MANAGER), "key")
    run(world)
    assert s0.heard[0].verbatim == b""
    assert net.signed == set()


def test_an_inquiry_goes_to_peers_and_managers() -> None:
    world = ground()
    net, (s0, s1, p0) = network(world, "s0", "s1", "p0")
    net.audience[TX], net.hosts[TX] = {"s0": None, "s1": None}, {"p0": None}
    net.cast("s0", Send(Inquiry(TX, "m", "voted", "s0"), To.MEMBERS), "key")
    run(world)
    assert [len(site.heard) for site in (s0, s1, p0)] == [0, 1, 1]


@pytest.mark.parametrize(("faults", "times"), [(Faults(loss=1.0), 0), (Faults(duplication=1.0), 2)])
def test_messages_are_lost_and_doubled(faults: Faults, times: int) -> None:
    world = ground(faults)
    net, (_, s0) = network(world, "p0", "s0")
    net.audience[TX] = {"s0": None}
    net.cast("p0", CLOSE, MANAGER)
    run(world)
    assert len(s0.heard) == times


@pytest.mark.parametrize("reordering", [True, False])
def test_messages_overtake_each_other_only_if_that_is_a_fault(*, reordering: bool) -> None:
    world = ground(Faults(delay=0.5, reordering=reordering))
    net, (_, s0) = network(world, "p0", "s0")
    net.audience[TX] = {"s0": None}
    for number in range(50):
        net.cast("p0", Send(Close(TX, 1, number), To.MEMBERS), MANAGER)
    run(world)
    rounds = [packet.message.round for packet in s0.heard if isinstance(packet.message, Close)]
    assert len(rounds) == 50
    assert (rounds != sorted(rounds)) is reordering


@pytest.mark.parametrize(("one_way", "back"), [(False, True), (True, False)])
def test_partitions(*, one_way: bool, back: bool) -> None:
    net, _ = network(ground(), "p0", "s0")
    partition = Partition(0.0, 1.0, ("s0",), one_way)
    net.cut(partition)
    assert net.blocked("s0", "p0")
    assert net.blocked("p0", "s0") is back
    assert not net.hears("p0", "s0")
    net.mend(partition)
    assert net.hears("p0", "s0")


def test_a_dead_process_hears_nothing() -> None:
    world = ground()
    net, (_, s0) = network(world, "p0", "s0")
    net.audience[TX] = {"s0": None}
    net.cast("p0", CLOSE, MANAGER)
    s0.crash(30.0)
    run(world)
    assert s0.heard == []


def test_a_stranger_who_has_an_effect_is_seen() -> None:
    _, (s0,) = network(ground(), "s0")
    alarm = s0.alarm(lambda _: None)
    lie = Received(Decide(TX, 1, "abort"), STRANGER, 1.0)
    assert stirred(s0, alarm, lie, [CLOSE], moved=False) == Stirred(TX, "s0", "Decide", STRANGER, ("Send",))
    assert stirred(s0, alarm, Received(lie.message, NOBODY, 1.0), [], moved=True) is not None
    assert stirred(s0, alarm, lie, [WakeAt(3.0)], moved=False) is None, "nothing was done"
    assert stirred(s0, alarm, Received(lie.message, MANAGER, 1.0), [CLOSE], moved=True) is None, "it has a right to it"
    alarm.set(-1.0)
    assert stirred(s0, alarm, lie, [CLOSE], moved=True) is None, "that was due anyway"

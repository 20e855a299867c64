"""Somebody who hears everything and has no key."""

from __future__ import annotations

from tests.unit.simulation.quiet import Listener, ground, network, run
from tutti.model.messages import MANAGER, NOBODY, Begin, Close, Send, To
from tutti.simulation.eavesdropper import Eavesdropper
from tutti.simulation.faults import Faults
from tutti.simulation.network import STRANGER, Network

TX = "j1-1"


def overheard(faults: Faults) -> tuple[Network, list[Listener]]:
    world = ground(faults)
    net, sites = network(world, "p0", "s0")
    net.audience[TX], net.hosts[TX] = {"s0": None}, {"p0": None}
    net.overhear = Eavesdropper(world, net).overhear
    for number in range(30):
        net.cast("p0", Send(Close(TX, 1, number), To.MEMBERS), MANAGER)
    net.cast("p0", Send(Begin(TX, 1, ("m",), 60.0), To.MEMBERS), MANAGER)
    run(world)
    return net, sites


def test_what_it_invents_is_never_signed_by_anybody_who_counts() -> None:
    net, (p0, s0) = overheard(Faults(forgery=1.0))
    forged = [packet for packet in (*p0.heard, *s0.heard) if packet.signer != MANAGER]
    assert len(forged) == 62, "one to a manager and one to a member, each time"
    assert {packet.signer for packet in forged} == {STRANGER, NOBODY}
    assert len({type(packet.message) for packet in forged}) > 5
    assert not any(packet.verbatim in net.signed for packet in forged if packet.verbatim)


def test_what_it_says_again_was_said_before() -> None:
    _, (p0, s0) = overheard(Faults(replay=1.0))
    assert p0.heard == []
    assert len(s0.heard) == 62
    assert {packet.signer for packet in s0.heard} == {MANAGER}


def test_without_faults_it_only_listens() -> None:
    _, (p0, s0) = overheard(Faults())
    assert (len(p0.heard), len(s0.heard)) == (0, 31)

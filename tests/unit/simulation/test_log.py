"""The bus: what it acknowledged is kept, once."""

from __future__ import annotations

from tests.unit.simulation.quiet import Listener, ground, network, run
from tutti.simulation.faults import Faults
from tutti.simulation.log import Append, Kept, Log

APPEND = Append("j1-1", "manager", "Invitation", 1)


def appended(faults: Faults | None = None, *, heal: bool = False) -> tuple[Log, list[str], list[tuple[str, Kept]]]:
    world = ground(faults)
    net, (_,) = network(world, "s0")
    net.audience["j1-1"] = {"s0": None}
    answers: list[str] = []
    offered: list[tuple[str, Kept]] = []
    log = Log(world, net, lambda name, kept: offered.append((name, kept)))
    log.append(Listener("p0", world), APPEND, None, answers.append)
    run(world, 5.0)
    if heal:
        assert answers == []
        world.heal()
        run(world, 5.0)
    return log, answers, offered


def test_an_event_is_stored_acknowledged_and_offered() -> None:
    log, answers, offered = appended()
    assert answers == [""]
    kept = log.find(*APPEND.key)
    assert kept is not None
    assert log.of("j1-1") == [kept]
    assert offered == [("s0", kept)]


def test_an_append_whose_acknowledgement_is_lost_is_repeated_and_stored_once() -> None:
    log, answers, offered = appended(Faults(ack_lost=1.0), heal=True)
    assert answers == [""]
    assert len(log.of("j1-1")) == len(offered) == 1


def test_an_append_that_is_lost_is_repeated() -> None:
    log, answers, _ = appended(Faults(append_lost=1.0), heal=True)
    assert (len(log.of("j1-1")), answers) == (1, [""])


def test_a_stream_that_is_full_says_so() -> None:
    log, answers, _ = appended(Faults(append_refused=1.0))
    assert answers == ["the stream is full"]
    assert log.find(*APPEND.key) is None

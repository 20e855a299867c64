"""A world in which nothing goes wrong, unless a test says so."""

from __future__ import annotations

from collections.abc import Callable

from tutti.simulation.faults import Faults
from tutti.simulation.ground import Ground
from tutti.simulation.network import Network, Packet
from tutti.simulation.scenario import Scenario
from tutti.simulation.site import Site
from tutti.simulation.workloads import Workload

NOBODY_AT_WORK = Workload(1, 0, (), (), ())


def ground(faults: Faults | None = None) -> Ground:
    return Ground(Scenario(1, NOBODY_AT_WORK, faults or Faults()))


def run(world: Ground, seconds: float = 60.0) -> None:
    end = world.now + seconds
    while world.agenda.step(end):
        pass


class Listener(Site):
    """Keeps what it hears. `on_begin`: what a new process does."""

    def __init__(self, name: str, world: Ground, on_begin: Callable[[], None] = lambda: None) -> None:
        super().__init__(name, world)
        self.heard: list[Packet] = []
        self.begins = on_begin

    def receive(self, packet: Packet) -> None:
        self.heard.append(packet)

    def begin(self) -> None:
        self.begins()


def network(world: Ground, *names: str) -> tuple[Network, list[Listener]]:
    net, listeners = Network(world), [Listener(name, world) for name in names]
    for listener in listeners:
        net.attach(listener)
    return net, listeners

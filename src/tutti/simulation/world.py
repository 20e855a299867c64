"""Publishers, keepers, subscribers, the journal and the bus of one scenario; their faults, and their healing."""

from __future__ import annotations

from functools import partial

import msgspec

from tutti.simulation.checkers import Violation
from tutti.simulation.control import Control, Shared
from tutti.simulation.eavesdropper import Eavesdropper
from tutti.simulation.faults import JOURNAL, Jump, Outage, Pause
from tutti.simulation.ground import Ground
from tutti.simulation.journal import Journal
from tutti.simulation.log import Log
from tutti.simulation.member import Subscriber
from tutti.simulation.network import Network
from tutti.simulation.publisher import Publisher
from tutti.simulation.scenario import Scenario
from tutti.simulation.site import Site
from tutti.simulation.workloads import Order, Resolution

HEALING_SECONDS = 600.0  # in which everything must have ended
STEPS_MAX_COUNT = 200_000
NAMES = {"p": "a publisher", "k": "a keeper", "s": "a subscriber"}


class World:
    """`run` is one life: faults, then healing; it raises what the checkers object to."""

    def __init__(self, scenario: Scenario) -> None:
        workload = scenario.workload
        self.scenario = scenario
        self.ground = ground = Ground(scenario)
        self.network = Network(ground)
        self.journal = Journal(ground, self.network)
        self.log = Log(ground, self.network, lambda name, kept: self._subscribers[name].offer(kept))
        self._shared = Shared(ground, self.network, self.journal, self.log)
        self._subscribers = self._shared.subscribers
        for number, habits in enumerate(workload.subscribers):
            subscriber = Subscriber(f"s{number}", ground, self.network, habits)
            subscriber.log = self.log
            self._subscribers[subscriber.name] = subscriber
        groups = tuple(tuple(f"s{number}" for number in group) for group in workload.groups)
        self._publishers = [Publisher(f"p{number}", self._shared, groups) for number in range(workload.publishers)]
        keepers = [Control(f"k{number}", self._shared) for number in range(workload.keepers)]
        self._controls: list[Control] = [*self._publishers, *keepers]
        self._sites: dict[str, Site] = {
            site.name: site for site in (*self._controls, *self._subscribers.values(), self.journal)
        }
        receivers: tuple[Control | Subscriber, ...] = (*self._controls, *self._subscribers.values())
        for receiver in receivers:
            self.network.attach(receiver)
        self.network.candidates = tuple(self._subscribers)
        self.network.recovery = tuple(control.name for control in self._controls)
        self.network.overhear = Eavesdropper(ground, self.network).overhear
        self._begun = 0
        self._plan()

    # What will happen

    def _plan(self) -> None:
        agenda, faults = self.ground.agenda, self.scenario.faults
        for control in self._controls:
            control.begin()
        for order in self.scenario.workload.orders:
            agenda.at(order.start, partial(self._start, order))
        for partition in faults.partitions:
            agenda.at(partition.start, partial(self.network.cut, partition))
            agenda.at(partition.end, partial(self.network.mend, partition))
        for pause in faults.pauses:
            agenda.at(pause.start, partial(self._pause, pause))
        for jump in faults.jumps:
            agenda.at(jump.at, partial(self._jump, jump))
        for outage in faults.outages:
            agenda.at(outage.at, partial(self._fail, outage))
        for resolution in self.scenario.workload.resolutions:
            agenda.at(resolution.at, partial(self._resolve, resolution))

    def _start(self, order: Order) -> None:
        publisher = self._publishers[order.publisher]
        if not publisher.awake:
            self.ground.agenda.later(1.0, partial(self._start, order))
            return
        self._begun += 1
        publisher.start(order)

    def _pause(self, pause: Pause) -> None:
        site = self._sites[pause.site]
        if site.up:
            self.ground.fired["a process stands still"] += 1
            site.pause(pause.end)

    def _jump(self, jump: Jump) -> None:
        whose = "the journal's" if jump.site == JOURNAL else "a"
        self.ground.fired[f"{whose} clock jumps {'ahead' if jump.by > 0 else 'back'}"] += 1
        self._sites[jump.site].jump(jump.by)

    def _fail(self, outage: Outage) -> None:
        site = self._sites[outage.site]
        if site.up:
            if outage.site != JOURNAL:
                self.ground.fired[f"outage of {NAMES[outage.site[0]]}"] += 1
            site.crash(outage.down)

    def _resolve(self, resolution: Resolution) -> None:
        found = [(site, tx) for site in self._subscribers.values() if site.awake for tx in site.in_doubt()]
        if found:
            site, tx = self.ground.rng.choice(found)
            site.resolve(tx, resolution.outcome)
        elif not self.ground.healed:
            self.ground.agenda.later(0.05, partial(self._resolve, resolution))

    # Running

    def run(self) -> None:
        self._run_until(self.scenario.workload.faulty_seconds)
        self._heal()
        self._run_until(self.ground.now + HEALING_SECONDS, rest=True)
        while self.ground.agenda.steps < self.scenario.steps_at_least:
            self._go_on()
        self.ground.judge.conclude()

    def _run_until(self, end: float, *, rest: bool = False) -> None:
        agenda, checked = self.ground.agenda, 0.0
        while agenda.step(end):
            if agenda.steps > STEPS_MAX_COUNT:
                raise Violation("liveness", "", f"after {agenda.steps:,} steps it is not over")
            if rest and agenda.now >= checked:
                checked = agenda.now + 1.0
                if self._at_rest():
                    return

    def _at_rest(self) -> bool:
        ledger = self.ground.judge.ledger
        return (
            self._begun >= len(self.scenario.workload.orders)
            and ledger.finished >= ledger.records.keys()
            and not any(ledger.prepared.values())
            and all(site.settled() for site in self._subscribers.values())
        )

    def _heal(self) -> None:
        self.ground.say("world", "", "the faults stop")
        self.ground.heal()
        self.network.mend_all()
        for site in self._sites.values():
            site.paused_until = min(site.paused_until, self.ground.now)
            site.restart()

    def _go_on(self) -> None:
        """More of the same, without faults, until enough has happened."""
        order = self.scenario.workload.orders[self._begun % len(self.scenario.workload.orders)]
        start = self.ground.now
        self._start(msgspec.structs.replace(order, number=self._begun, start=start))
        self._run_until(start + HEALING_SECONDS, rest=True)

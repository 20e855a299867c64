"""What everything stands on: the agenda, the one source of chance, the faults in force, and who watches."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tutti.simulation.agenda import Agenda
from tutti.simulation.checkers import Judge
from tutti.simulation.facts import Fact
from tutti.simulation.faults import Faults
from tutti.simulation.scenario import Scenario
from tutti.simulation.trace import Trace

LATENCY_SECONDS = 0.02  # on average, of a message, a write or a handler


class Ground:
    """`fired` counts how often each fault point was met."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.faults = scenario.faults
        self.agenda = Agenda()
        self.rng = random.Random(scenario.seed)
        self.trace = Trace()
        self.judge = Judge()
        self.fired: Counter[str] = Counter()
        self.healed = False
        self._left = [crash.skip for crash in scenario.faults.crashes]

    @property
    def now(self) -> float:
        return self.agenda.now

    def draw(self, share: float) -> bool:
        return share > 0.0 and self.rng.random() < share

    def strikes(self, share: float, point: str) -> bool:
        """Whether this fault happens now."""
        if share <= 0.0 or self.rng.random() >= share:
            return False
        self.fired[point] += 1
        return True

    def latency(self) -> float:
        return self.rng.expovariate(1.0 / LATENCY_SECONDS)

    def see(self, where: str, fact: Fact) -> None:
        self.trace.note(self.agenda.now, where, fact.tx, fact)
        self.judge.observe(fact)

    def say(self, where: str, tx: str, what: Any) -> None:
        self.trace.note(self.agenda.now, where, tx, what)

    def crash_due(self, role: str, effect: object, when: str) -> float | None:
        """For how long the process is down if it dies here; None: it lives."""
        for number, crash in enumerate(self.faults.crashes):
            if crash.role != role or crash.when != when or crash.effect != type(effect).__name__:
                continue
            self._left[number] -= 1
            if self._left[number] == -1:
                self.fired[crash.point] += 1
                return crash.down
        return None

    def heal(self) -> None:
        self.faults, self.healed = Faults(), True

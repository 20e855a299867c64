"""One scenario, from beginning to end, and what is to be said about it."""

from __future__ import annotations

import msgspec

from tutti.errors import InvariantViolated
from tutti.simulation.checkers import Violation
from tutti.simulation.scenario import Scenario
from tutti.simulation.trace import Trace
from tutti.simulation.world import World


class Failure(msgspec.Struct, frozen=True):
    """`invariant`: which; `self-check` for what a machine itself objects to, `crash` for any other exception."""

    invariant: str
    tx: str
    objection: str


class Report(msgspec.Struct, frozen=True):
    """`fired`: how often each fault point was met."""

    seed: int
    steps: int
    transactions: int
    registered: int
    committed: int
    aborted: int
    compensated: int
    resolved: int
    taken_over: int
    fired: dict[str, int]
    failure: Failure | None = None


def play(scenario: Scenario) -> tuple[Report, Trace]:
    world = World(scenario)
    failure: Failure | None = None
    try:
        world.run()
    except Violation as violation:
        failure = Failure(violation.invariant, violation.tx, violation.objection)
    except InvariantViolated as violation:
        failure = Failure("self-check", "", str(violation))
    except Exception as error:  # noqa: BLE001  whatever a machine with a bug raises is a finding
        failure = Failure("crash", "", f"{type(error).__name__}: {error}")
    return _report(world, failure), world.ground.trace


def _report(world: World, failure: Failure | None) -> Report:
    ledger = world.ground.judge.ledger
    return Report(
        seed=world.scenario.seed,
        steps=world.ground.agenda.steps,
        transactions=len(ledger.ordered),
        registered=len(ledger.records),
        committed=sum(row.outcome == "commit" for row in ledger.rows.values()),
        aborted=sum(row.outcome == "abort" for row in ledger.rows.values()),
        compensated=sum(map(len, ledger.undone.values())),
        resolved=len(ledger.resolved),
        taken_over=sum(epoch > 1 for epoch in ledger.epochs.values()),
        fired=dict(sorted(world.ground.fired.items())),
        failure=failure,
    )

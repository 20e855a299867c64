"""A smaller scenario that breaks the same rule: faults and orders are left out, one by one, as long as it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tutti.simulation.faults import Faults
from tutti.simulation.run import play
from tutti.simulation.scenario import Scenario
from tutti.simulation.workloads import Habits

PLAYS_MAX_COUNT: Final = 400
_LISTS: Final = ("crashes", "outages", "partitions", "pauses", "jumps")
_CHANCES: Final = ("publishes", "handler_fails", "sets_abort", "prepare_fails", "compensator_fails")


def shrink(scenario: Scenario, rule: str) -> Scenario:
    """`rule`: the name of the invariant that the scenario breaks. The same arguments give the same result."""
    plays = 0
    smaller = True
    while smaller and plays < PLAYS_MAX_COUNT:
        smaller = False
        for candidate in _candidates(scenario):
            plays += 1
            if plays > PLAYS_MAX_COUNT:
                break
            if _breaks(candidate, rule):
                scenario, smaller = candidate, True
                break
    return scenario


def size(scenario: Scenario) -> tuple[int, int]:
    """Transactions, and kinds and occasions of faults."""
    faults = scenario.faults
    plain = sum(getattr(faults, name) != getattr(Faults(), name) for name in _plain_faults())
    return len(scenario.workload.orders), plain + sum(len(getattr(faults, name)) for name in _LISTS)


def _breaks(scenario: Scenario, rule: str) -> bool:
    failure = play(scenario)[0].failure
    return failure is not None and failure.invariant == rule


def _candidates(scenario: Scenario) -> Iterator[Scenario]:
    """The large cuts first."""
    change = msgspec.structs.replace
    if scenario.steps_at_least:
        yield change(scenario, steps_at_least=0)
    else:  # what is begun only to fill the time is numbered on from the orders: none may be missing
        yield from (change(scenario, workload=w) for w in _fewer(scenario.workload, "orders"))
    faults = scenario.faults
    if faults != Faults():
        yield change(scenario, faults=Faults())
    for name in _LISTS:
        yield from (change(scenario, faults=f) for f in _fewer(faults, name))
    for name in _plain_faults():
        if getattr(faults, name) != getattr(Faults(), name):
            yield change(scenario, faults=change(faults, **{name: getattr(Faults(), name)}))
    yield from (change(scenario, workload=w) for w in _fewer(scenario.workload, "resolutions"))
    yield from _calmer(scenario)


def _plain_faults() -> list[str]:
    return [name for name in Faults.__struct_fields__ if name not in _LISTS]


def _fewer(value: Any, name: str) -> Iterator[Any]:
    """`value` with half of the list, the other half, and without each of it."""
    items = getattr(value, name)
    halves = (items[: len(items) // 2], items[len(items) // 2 :]) if len(items) > 2 else ()
    singles = tuple(items[:number] + items[number + 1 :] for number in range(len(items)))
    yield from (msgspec.structs.replace(value, **{name: rest}) for rest in (*halves, *singles))


def _calmer(scenario: Scenario) -> Iterator[Scenario]:
    """Subscribers that fail less."""
    workload = scenario.workload
    calm = tuple(msgspec.structs.replace(habits, **dict.fromkeys(_CHANCES, 0.0)) for habits in workload.subscribers)
    if calm != workload.subscribers:
        yield _with(scenario, calm)
    for number, habits in enumerate(workload.subscribers):
        if habits != calm[number]:
            yield _with(scenario, (*workload.subscribers[:number], calm[number], *workload.subscribers[number + 1 :]))


def _with(scenario: Scenario, subscribers: tuple[Habits, ...]) -> Scenario:
    workload = msgspec.structs.replace(scenario.workload, subscribers=subscribers)
    return msgspec.structs.replace(scenario, workload=workload)

"""A failure in words: which rule, what is wrong, what happened, and how to see it again."""

from __future__ import annotations

from typing import Final

from tutti.simulation.checkers import INVARIANTS
from tutti.simulation.run import Failure, Report
from tutti.simulation.trace import Trace

LAST_COUNT: Final = 40  # lines of the transaction before the rule was broken
_OTHER_RULES: Final = {
    "self-check": "a machine's state does not contradict itself",
    "crash": "a machine takes every input",
}


def rule(name: str) -> str:
    """The invariant in words."""
    return next((i.rule for i in INVARIANTS if i.name == name), _OTHER_RULES.get(name, name))


def replay(seed: int, options: str = "--trace") -> str:
    """The command that runs it again."""
    return f"python -m tutti.simulation --seed {seed} {options}".rstrip()


def tell(report: Report, failure: Failure, trace: Trace, *, last: int | None = LAST_COUNT) -> list[str]:
    lines = trace.lines(tx=failure.tx, last=last)
    about = f" in {failure.tx}" if failure.tx else ""
    left_out = len(trace) - len(lines)
    return [
        f"seed {report.seed} breaks {failure.invariant!r}{about}: {failure.objection}",
        f"  the rule: {rule(failure.invariant)}",
        *(f"  {line}" for line in lines),
        *([f"  ({left_out:,} further lines of the trace are not shown)"] if left_out else []),
        f"  again: {replay(report.seed)}",
        f"  smaller: {replay(report.seed, '--shrink')}",
    ]

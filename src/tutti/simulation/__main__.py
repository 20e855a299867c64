"""`python -m tutti.simulation`: the transaction protocol under seeded faults. See docs/simulation.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tutti.simulation import planted, report, story, suite
from tutti.simulation.run import Report, play
from tutti.simulation.scenario import draw
from tutti.simulation.shrink import shrink, size

PLANTED_SEEDS_COUNT = 500  # in which a planted bug must be noticed
MUTANT_SEEDS_COUNT = 60


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tutti.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many scenarios (default: 2000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, default=None, help="only this one, and what is to be said about it")
    parser.add_argument("--trace", action="store_true", help="with --seed: everything that happened")
    parser.add_argument("--tx", default="", help="with --trace: only this transaction, such as j1-4")
    parser.add_argument("--shrink", action="store_true", help="with --seed: a smaller scenario that fails alike")
    parser.add_argument("--planted", action="store_true", help="plant bugs, and see who notices")
    parser.add_argument("--mutants", action="store_true", help="leave out each guard in turn, and see who notices")
    parser.add_argument("--json", action="store_true", help="only the figures, as one JSON object")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    console = Console(quiet=options.json, highlight=False)
    if options.seed is not None:
        return one(console, options)
    if options.planted:
        return plant(console)
    if options.mutants:
        return mutate(console)
    return many(console, options)


def many(console: Console, options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.seeds)
    began = time.perf_counter()
    with _progress(console) as bar:
        task = bar.add_task("scenarios", total=len(seeds))
        broken = 0

        def watch(done: Report) -> None:
            nonlocal broken
            broken += done.failure is not None
            bar.update(task, advance=1, description=f"scenarios ({broken} violations)")

        totals = suite.run(seeds, watch)
    seconds = time.perf_counter() - began
    report.show(console, totals, seconds)
    print(json.dumps(report.figures(totals, options.first, seconds)))
    return 1 if totals.objections() else 0


def one(console: Console, options: argparse.Namespace) -> int:
    scenario = draw(options.seed)
    result, trace = play(scenario)
    failure = result.failure
    if options.shrink and failure is not None:
        scenario = shrink(scenario, failure.invariant)
        console.print("left are {} transactions and {} faults: {}".format(*size(scenario), scenario), markup=False)
        result, trace = play(scenario)
        failure = result.failure
    if options.trace:
        console.print("\n".join(trace.lines(tx=options.tx)), markup=False, soft_wrap=True)
    if failure is not None:
        lines = story.tell(result, failure, trace, last=0 if options.trace else story.LAST_COUNT)
        console.print("\n".join(lines), markup=False, soft_wrap=True)
    violations = [] if failure is None else [{"check": failure.invariant, "objection": failure.objection}]
    print(
        json.dumps(
            {
                "seed": options.seed,
                "steps": result.steps,
                "transactions": result.transactions,
                "committed": result.committed,
                "aborted": result.aborted,
                "faults": sum(result.fired.values()),
                "digest": trace.digest(),
                "violations": violations,
            }
        )
    )
    return 1 if violations else 0


def plant(console: Console) -> int:
    named = [(bug.name, bug.plant) for bug in planted.BUGS]
    catches = _catch(console, "planted bugs", named, range(PLANTED_SEEDS_COUNT))
    report.show_catches(console, f"planted bugs, at most {PLANTED_SEEDS_COUNT} scenarios each", catches)
    noticed = report.caught_count(catches)
    print(json.dumps({"planted": len(catches), "noticed": noticed, "most_seeds": max(one.seeds for one in catches)}))
    return 0 if noticed == len(catches) else 1


def mutate(console: Console) -> int:
    """Some guards only save work: leaving them out breaks no rule, so not every mutant can be noticed."""
    catches = _catch(console, "mutants", list(planted.mutants()), range(MUTANT_SEEDS_COUNT))
    report.show_catches(console, f"each guard left out, at most {MUTANT_SEEDS_COUNT} scenarios each", catches)
    noticed = report.caught_count(catches)
    share = round(noticed / len(catches), 3)
    print(json.dumps({"mutants": len(catches), "noticed": noticed, "share": share}))
    return 0


def _catch(
    console: Console, title: str, named: Sequence[tuple[str, planted.Plant]], seeds: Iterable[int]
) -> list[planted.Catch]:
    catches = []
    with _progress(console) as bar:
        task = bar.add_task(title, total=len(named))
        for name, plant in named:
            catches.append(planted.catch(name, plant, seeds))
            bar.update(task, advance=1)
    return catches


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:>26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=console.quiet)


if __name__ == "__main__":
    sys.exit(main())

"""Draws the machines: one page under docs/diagrams for each transition table, with its rules, diagram and rows.

    python -m tools.diagrams           write the pages anew (`make diagrams`)

A table is found by its name: every module of `control` and `flow` that defines `TRANSITIONS`. Nothing about a machine
is written twice: the words are those of its module, the states and their comments those of its enumerations.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from tutti.control.table import Row

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / "docs" / "diagrams"
FOLDERS: Final = ("control", "flow")

_TABLE: Final = re.compile(r"^TRANSITIONS: ", re.MULTILINE)
_MEMBER: Final = re.compile(r'^    [A-Z_]+ = "(?P<value>[^"]+)"(?:  # (?P<comment>.*))?$', re.MULTILINE)
_ADDRESS: Final = "../../src/tutti"


class Step(NamedTuple):
    """One row of a table, of whatever form it is."""

    state: str
    cause: str
    guards: tuple[str, ...]
    to: str


class Machine(NamedTuple):
    name: str
    place: str  # of the table, under src/tutti
    rules_place: str
    words: str  # the question it answers, and its rules
    states: tuple[str, ...]
    steps: tuple[Step, ...]
    notes: Mapping[str, str]  # what the enumerations say about a state or a cause

    @property
    def question(self) -> str:
        return self.words.partition("\n")[0]

    @property
    def final(self) -> tuple[str, ...]:
        left = {step.state for step in self.steps if step.to != step.state}
        return tuple(state for state in self.states if state not in left)


# Reading


def machines() -> list[Machine]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / "src" / "tutti" / folder).rglob("*.py")):
            source = path.read_text()
            if _TABLE.search(source):
                found.append(_machine(path.relative_to(ROOT / "src" / "tutti"), source))
    return found


def _machine(place: Path, source: str) -> Machine:
    module = _imported(place)
    package = place.stem == "life"  # the table of a machine that is a package; its rules are in another module of it
    rules_place, words = _rules(place.parent) if package else (place, module.__doc__ or "")
    table: Mapping[StrEnum, Mapping[StrEnum, Any]] = module.TRANSITIONS
    return Machine(
        name=place.parent.name if package else place.stem,
        place=place.as_posix(),
        rules_place=rules_place.as_posix(),
        words=words.strip(),
        states=tuple(state.value for state in table),
        steps=tuple(_steps(table)),
        notes={m["value"]: m["comment"] for m in _MEMBER.finditer(source) if m["comment"]},
    )


def _rules(package: Path) -> tuple[Path, str]:
    """The longest words win: they are the rules."""
    places = [package / "machine.py", package / "__init__.py"]
    return max(((place, _imported(place).__doc__ or "") for place in places), key=lambda found: len(found[1]))


def _imported(place: Path) -> ModuleType:
    parts = place.with_suffix("").parts
    return importlib.import_module(".".join(("tutti", *(part for part in parts if part != "__init__"))))


def _steps(table: Mapping[StrEnum, Mapping[StrEnum, Any]]) -> Iterator[Step]:
    for state, rows in table.items():
        for cause, row in rows.items():
            if isinstance(row, Row):
                yield Step(state.value, cause.value, tuple(guard.value for guard in row.guards), row.to.value)
            else:
                yield Step(state.value, cause.value, (), row.value)


# Writing


def pages() -> dict[str, str]:
    """Every file of the folder, by its name."""
    found = machines()
    return {"README.md": _index(found)} | {f"{machine.name}.md": page(machine) for machine in found}


def page(machine: Machine) -> str:
    lines = [
        f"# {machine.name}: {machine.question[0].lower()}{machine.question[1:]}",
        "",
        f"Generated from the table in [{machine.place}]({_ADDRESS}/{machine.place}) by `make diagrams`.",
        "Where a state has no row for a cause, or a guard does not hold, nothing happens.",
        "",
        *diagram(machine),
        "",
        *_rows(machine),
        "",
        *_notes(machine),
        "## In words",
        "",
        f"As [{machine.rules_place}]({_ADDRESS}/{machine.rules_place}) says it:",
        "",
        *(f"> {line}".rstrip() for line in machine.words.splitlines()),
    ]
    return "\n".join(lines) + "\n"


def diagram(machine: Machine) -> list[str]:
    """As Mermaid draws it. Its ids are words, so states have numbers and their names are labels."""
    ids = {state: f"s{number}" for number, state in enumerate(machine.states)}
    lines = ["```mermaid", "stateDiagram-v2", "    direction TB"]
    lines += [f'    state "{state}" as {ids[state]}' for state in machine.states]
    lines += [f"    [*] --> {ids[machine.states[0]]}"]
    for step in machine.steps:
        label = "<br/>".join(_plain(part) for part in (step.cause, *(f"[{guard}]" for guard in step.guards)))
        lines.append(f"    {ids[step.state]} --> {ids[step.to]}: {label}")
    lines += [f"    {ids[state]} --> [*]" for state in machine.final]
    return [*lines, "```"]


def _plain(text: str) -> str:
    """Without what Mermaid takes for the end of a label."""
    return re.sub(r"[:;#]+", "", text)


def _rows(machine: Machine) -> list[str]:
    head = ["| in | when | if | then |", "| --- | --- | --- | --- |"]
    return head + [
        f"| {step.state} | {step.cause} | {', '.join(step.guards) or '–'} | {step.to} |" for step in machine.steps
    ]


def _notes(machine: Machine) -> list[str]:
    if not machine.notes:
        return []
    return [*(f"* **{word}**: {note}" for word, note in machine.notes.items()), ""]


def _index(found: list[Machine]) -> str:
    lines = [
        "# The machines",
        "",
        "Each rule of Tutti that depends on what happened before is a machine with a transition table. These pages are",
        "generated from the tables by `make diagrams`; a test fails if they are not what the code says.",
        "",
        "| machine | the question it answers | states | rows | guards |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for machine in found:
        guards = sum(len(step.guards) for step in machine.steps)
        lines.append(
            f"| [{machine.name}]({machine.name}.md) | {machine.question} "
            f"| {len(machine.states)} | {len(machine.steps)} | {guards} |"
        )
    lines += [
        "",
        "*transaction*, *census*, *closing* and *commitment* live at a transaction's manager; *participation*,",
        "*doubt*, *finishing* and *compensation* at each member; *dispatcher* and *partitions* at every subscriber,",
        "also outside of transactions; *conversation* lies between a publisher and a manager elsewhere.",
        "The simulator takes the guards away in turn: `make simulate ARGS=--mutants`.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    written = pages()
    for path in PAGES.glob("*.md"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (PAGES / name).write_text(text)
    sys.stdout.write(f"{len(written)} pages in {PAGES.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()

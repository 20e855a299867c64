"""The state diagrams are what the transition tables say, and somebody who changes a table is told so."""

from __future__ import annotations

import re

from tests.docs.markdown import blocks
from tools.diagrams import PAGES, ROOT, Machine, Step, diagram, machines, page, pages
from tutti.control.participation.life import TRANSITIONS, Cause, Guard, Stage


def test_what_is_committed_is_what_is_generated() -> None:
    written = {path.name: path.read_text() for path in PAGES.glob("*")}
    wrong = sorted(name for name in written.keys() | pages().keys() if written.get(name) != pages().get(name))
    assert not wrong, f"{', '.join(wrong)}: `make diagrams` writes them anew"


def test_no_table_is_left_out() -> None:
    """Found another way than the generator does: by what says that it follows a table."""
    users = [*(ROOT / "src/tutti/control").rglob("*.py"), *(ROOT / "src/tutti/flow").rglob("*.py")]
    tables = {p for p in users if re.search(r"^TRANSITIONS\b.* = \{$", p.read_text(), re.MULTILINE)}
    assert len(tables) >= 10
    assert {ROOT / "src/tutti" / machine.place for machine in machines()} == tables


def test_every_row_and_every_guard_of_a_table_is_drawn() -> None:
    machine = next(machine for machine in machines() if machine.name == "participation")
    text = "\n".join(diagram(machine))
    assert text.count("-->") == sum(len(rows) for rows in TRANSITIONS.values()) + 1 + 2  # one beginning, two ends
    assert text.count("[on the list]") == 1
    assert Step(Stage.JOINED, Cause.BEGIN, (Guard.MANAGER, Guard.LISTED), Stage.WORKING) in machine.steps
    assert machine.final == ("ended", "forgotten")


def test_a_diagram_is_written_as_mermaid_reads_it() -> None:
    steps = (Step("off", "push: hard", ("power; safe",), "on"), Step("on", "push: hard", (), "on"))
    machine = Machine("lamp", "control/lamp.py", "control/lamp.py", "Is it lit?\n\n1. Rule.", ("off", "on"), steps, {})
    assert diagram(machine) == [
        "```mermaid",
        "stateDiagram-v2",
        "    direction TB",
        '    state "off" as s0',
        '    state "on" as s1',
        "    [*] --> s0",
        "    s0 --> s1: push hard<br/>[power safe]",
        "    s1 --> s1: push hard",
        "    s1 --> [*]",
        "```",
    ]
    assert "| off | push: hard | power; safe | on |" in page(machine)
    assert "> 1. Rule." in page(machine)


def test_every_page_has_one_diagram() -> None:
    for path in PAGES.glob("*.md"):
        found = [block.language for block in blocks(path)]
        assert found == ([] if path.name == "README.md" else ["mermaid"]), path

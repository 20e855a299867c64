"""What you see: a picture for people, or JSON lines for programs."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.meeting.staging.databases import Rows
from examples.meeting.staging.episodes import Episode
from examples.meeting.staging.timeline import LANES, Row, spoken
from examples.meeting.staging.verdict import Verdict

INTRODUCTION: Final = (
    "A meeting is to be arranged. The organiser publishes an invitation in a transaction; rooms, ann, bob and tickets "
    "handle it, each in a process of its own with a PostgreSQL database of its own. They know nothing of each other "
    "but the type Invitation. Either the meeting ends up in all five databases, or in none: whatever breaks."
)
_GOOD, _BAD, _ODD = "bold green", "bold red", "bold yellow"


class Stage(Protocol):
    def introduce(self) -> None: ...
    def ready(self, seconds: float) -> None: ...
    def begin(self, episode: Episode) -> None: ...
    def show(self, rows: Sequence[Row]) -> None: ...
    def end(self, episode: Episode, before: Rows, after: Rows, verdict: Verdict, notes: Sequence[str]) -> None: ...
    def sum_up(self, verdicts: Sequence[Verdict], seconds: float) -> None: ...


class Picture:
    """A lane for each process, time downwards."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = 0.0
        self._dead: set[str] = set()

    def introduce(self) -> None:
        self._console.print()
        self._console.print(Panel(INTRODUCTION, title="[bold]Tutti[/bold]: every part plays, or none does"))
        self._console.print(Text("Starting NATS, PostgreSQL and five processes …", "dim"))

    def ready(self, seconds: float) -> None:
        self._console.print(Text(f"Ready after {seconds:.1f} s. All of it is real: watch them with ps.", "dim"))

    def begin(self, episode: Episode) -> None:
        self._began = 0.0
        self._dead = {"organiser"}
        self._console.print()
        self._console.rule(Text(f" {episode.number}  {episode.title} ", "bold"), align="left", style="cyan")
        self._console.print(Text(episode.story, "italic"))
        self._console.print()
        heading = Text("    time  ", "dim")
        for lane in LANES:
            heading.append(f" {lane} ", "bold cyan")
        self._console.print(heading)

    def show(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._began = self._began or row.time
            self._dead -= set(row.who)
            for number, line in enumerate(self._wrapped(row)):
                self._console.print(self._line(row, number, line), no_wrap=True, crop=False, soft_wrap=True)
            if row.step == "killed":
                self._dead |= set(row.who)

    def _wrapped(self, row: Row) -> list[str]:
        used = 12 + sum(len(lane) + 2 for lane in LANES)
        return textwrap.wrap(spoken(row), max(self._console.width - used, 30)) or [""]

    def _line(self, row: Row, number: int, words: str) -> Text:
        style = _style(row)
        line = Text(f"{row.time - self._began:+9.3f} " if number == 0 else " " * 10, "dim")
        for lane in LANES:
            acts = lane in row.who and number == 0
            mark = _mark(row) if acts else " " if lane in self._dead else "│"
            line.append(f" {mark:^{len(lane)}} ", style or "bold" if acts else "dim")
        return line.append("  ").append(words, style)

    def end(self, episode: Episode, before: Rows, after: Rows, verdict: Verdict, notes: Sequence[str]) -> None:
        table = Table("database", "before", "after", box=None, header_style="dim", padding=(0, 3, 0, 0))
        for name in before:
            changed = before[name] != after[name]
            table.add_row(name, _cell(before[name]), Text(_cell(after[name]), "bold" if changed else ""))
        mark = Text("✓ ", _GOOD) if verdict.holds else Text("✗ ", _BAD)
        mark.append(f"{verdict.actual}: ", "bold").append(
            episode.promise if verdict.holds else "; ".join(verdict.wrong)
        )
        more = (Text(f"  {note}", "magenta") for note in notes)
        self._console.print(Padding(Group(table, mark, *more), (1, 0, 0, 2)))

    def sum_up(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        self._console.print()
        self._console.rule(Text(" Summary ", "bold"), align="left", style="cyan")
        headings = ("", "episode", "expected", "actual", "rows", "prepared branches left")
        table = Table(*headings, box=None, header_style="dim", padding=(0, 3, 0, 0))
        for one in verdicts:
            mark = Text("✓", _GOOD) if one.holds else Text("✗", _BAD)
            rows = "consistent" if one.consistent else Text("INCONSISTENT", _BAD)
            table.add_row(mark, f"{one.number}  {one.title}", one.expected, one.actual, rows, str(one.prepared))
        self._console.print(Padding(table, (0, 0, 1, 2)))
        good = bool(verdicts) and all(one.holds for one in verdicts)
        last = "All or nothing, five times." if good else "That should not have happened: please report it."
        self._console.print(Text(f"{last} ({seconds:.0f} seconds)", _GOOD if good else _BAD))


class Lines:
    """One JSON object a line; the last one is the summary."""

    def introduce(self) -> None: ...

    def ready(self, seconds: float) -> None:
        _write({"ready": True, "seconds": round(seconds, 1)})

    def begin(self, episode: Episode) -> None:
        self._number = episode.number
        _write({"episode": episode.number, "title": episode.title, "story": episode.story})

    def show(self, rows: Sequence[Row]) -> None:
        for row in rows:
            said = {key: row.said[key] for key in ("tx", "vote", "outcome", "reason", "epoch") if row.said.get(key)}
            who = list(row.who)
            step = {"time": round(row.time, 6), "who": who, "step": row.step, "sentence": row.sentence}
            _write({"episode": self._number} | step | said)

    def end(self, episode: Episode, before: Rows, after: Rows, verdict: Verdict, notes: Sequence[str]) -> None:
        _write(
            {"episode": episode.number, "before": dict(before), "after": dict(after), "notes": list(notes)}
            | _judged(verdict)
        )

    def sum_up(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        episodes = [_judged(one) for one in verdicts]
        holds = bool(verdicts) and all(one.holds for one in verdicts)
        left = sum(one.prepared for one in verdicts)
        _write({"summary": episodes, "prepared": left, "seconds": round(seconds, 1), "holds": holds})


def _judged(verdict: Verdict) -> dict[str, object]:
    return {
        "number": verdict.number,
        "title": verdict.title,
        "expected": verdict.expected,
        "actual": verdict.actual,
        "consistent": verdict.consistent,
        "prepared": verdict.prepared,
        "holds": verdict.holds,
        "wrong": list(verdict.wrong),
    }


def _write(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _cell(rows: Iterable[str]) -> str:
    return ", ".join(rows) or "-"


_MARKS: Final = {
    "killed": "✗",
    "staged": "!",
    "decided": "■",
    "doubted": "?",
    "told": "»",
    "learned": "●",
    "succeeded": "★",
    "undone": "↶",
    "committed": "✓",
}


def _mark(row: Row) -> str:
    if row.step == "voted":
        return "✓" if row.said.get("vote") == "yes" else "✗"
    return _MARKS.get(row.step, "•")


def _style(row: Row) -> str:
    outcome, vote = row.said.get("outcome"), row.said.get("vote")
    match row.step:
        case "killed" | "lost":
            return _BAD
        case "staged" | "doubted" | "undoing" | "undone" | "succeeded":
            return _ODD
        case "told":
            return "bold magenta"
        case "decided" | "learned" | "announced":
            return _GOOD if outcome == "commit" else _BAD
        case "voted":
            return "green" if vote == "yes" else _BAD
        case _:
            return ""

"""What you see: one picture that changes, on a terminal; lines elsewhere."""

from __future__ import annotations

import time
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.mediator_tour.ledger import DESKS, Ledger, Verdict

PICTURES_PER_SECOND: Final = 10
LINE_SECONDS: Final = 2.0


class Stage(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def act(self, title: str, text: str) -> None:
        """The next part of the story begins."""
        ...

    def look(self) -> None:
        """Something may have changed."""
        ...


class Picture:
    """On a terminal."""

    def __init__(self, console: Console, ledger: Ledger) -> None:
        self._ledger = ledger
        self._acts: list[tuple[str, str]] = []
        self._live = Live(console=console, refresh_per_second=PICTURES_PER_SECOND, get_renderable=self._draw)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def act(self, title: str, text: str) -> None:
        self._acts.append((title, text))

    def look(self) -> None:
        """`Live` draws by itself."""

    def _draw(self) -> RenderableType:
        story = Text()
        for title, text in self._acts:
            current = (title, text) == self._acts[-1]
            story.append(f"{title:<12}", "bold yellow" if current else "dim").append(
                f"{text}\n", "" if current else "dim"
            )
        story.rstrip()
        return Group(
            Panel(story, title="tutti", title_align="left"), self._exchanges(), self._desks(), letters(self._ledger)
        )

    def _exchanges(self) -> Table:
        table = Table("publishes", "", "acknowledged", box=None, header_style="bold")
        for exchange, stored in self._ledger.stored.items():
            bar = ProgressBar(total=self._ledger.count, completed=stored, width=40)
            table.add_row(exchange, bar, f"{stored}")
        return table

    def _desks(self) -> Table:
        table = Table("subscribes", "where", "handled", "in order", "last", box=None, header_style="bold")
        for desk, (where, _) in DESKS.items():
            lines = self._ledger.of_desk(desk)
            good = not any(line.misplaced for line in lines)
            order = Text("yes", "green") if good else Text("no", "bold red")
            table.add_row(desk, Text(where), str(sum(line.handled for line in lines)), order, self._ledger.last[desk])
        return table


class Lines:
    """In a file, a pipe, or a log of continuous integration."""

    def __init__(self, console: Console, ledger: Ledger) -> None:
        self._console = console
        self._ledger = ledger
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def act(self, title: str, text: str) -> None:
        self._console.print(f"== {title}: {text}", soft_wrap=True)

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_SECONDS
        handled = ", ".join(f"{d} {sum(line.handled for line in self._ledger.of_desk(d))}" for d in DESKS)
        self._console.print(
            f"   published {self._ledger.published}/{self._ledger.total}; handled: {handled}; "
            f"dead letters {len(self._ledger.letters)}",
            soft_wrap=True,
        )


def stage_for(console: Console, ledger: Ledger) -> Stage:
    return Picture(console, ledger) if console.is_terminal else Lines(console, ledger)


def letters(ledger: Ledger) -> Table:
    table = Table("dead letter of", "event", "because", box=None, header_style="bold")
    for letter in ledger.letters:
        table.add_row(letter.desk, Text(letter.event), Text(letter.reason, "red"))
    return table


def summary(console: Console, ledger: Ledger, verdicts: list[Verdict], seconds: float) -> None:
    if not console.is_terminal:
        console.print(letters(ledger))
    for verdict in verdicts:
        mark = Text("✓ ", "bold green") if verdict.holds else Text("✗ ", "bold red")
        console.print(mark.append(verdict.sentence, ""), soft_wrap=True)
    good = all(verdict.holds for verdict in verdicts)
    last = "Nothing lost, order kept." if good else "That should not have happened: please report it."
    console.print(Text(f"{last} ({seconds:.0f} seconds)", "bold green" if good else "bold red"))

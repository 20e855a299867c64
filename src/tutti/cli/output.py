"""Where commands put what they found. They never print: they hand over values, which have two forms.

A value is a frozen struct: with `--json` its fields are the answer, one JSON object on one line; on a terminal its
`__rich__` says how it looks. Answers go to the standard output, everything else to the standard error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, TextIO, runtime_checkable

import msgspec
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tutti.errors import TuttiError

PIPE_WIDTH_CHARACTERS: Final = 200  # who reads a pipe, as grep does, wants a row on a line


class Unwritable(TuttiError):
    """The answer was found, but could not be written."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # nobody reads any more, which is no error
    except OSError as error:
        raise Unwritable(
            f"the output cannot be written: {os.strerror(error.errno or 0)}", hint="is its disk full?"
        ) from error


class Shown(Protocol):
    """A value with a form for people; it must be a msgspec struct, too."""

    def __rich__(self) -> RenderableType: ...


@runtime_checkable
class HasOwnJson(Protocol):
    """A value whose JSON form is not simply its fields."""

    def as_json(self) -> object: ...


class Problem(msgspec.Struct, frozen=True):
    """What went wrong, and what to do about it."""

    error: str
    hint: str = ""
    kind: str = ""  # the name of the error's class


class Output(Protocol):
    def show(self, value: Shown) -> None:
        """An answer, or one of a stream of answers."""
        ...

    def note(self, text: str) -> None:
        """For people only: what is going on."""
        ...

    def screen(self) -> AbstractContextManager[Callable[[Shown], None] | None]:
        """Where one value is shown and replaced by the next; None where answers go one after the other."""
        ...

    def fail(self, problem: Problem) -> None: ...


class JsonOutput:
    """One JSON object a line."""

    def __init__(self, answers: TextIO | None = None, problems: TextIO | None = None) -> None:
        self._answers = answers or sys.stdout
        self._problems = problems or sys.stderr

    def show(self, value: Shown) -> None:
        with writing():
            self._write(self._answers, value.as_json() if isinstance(value, HasOwnJson) else value)

    def note(self, text: str) -> None:
        """Programs do not read notes."""

    def screen(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def fail(self, problem: Problem) -> None:
        with contextlib.suppress(OSError):  # there is nowhere else to say it
            self._write(self._problems, problem)

    def _write(self, stream: TextIO, value: object) -> None:
        stream.write(msgspec.json.encode(value).decode() + "\n")
        stream.flush()  # a stream of answers is read as it comes


class ConsoleOutput:
    """For people. Texts of others are never taken for markup."""

    def __init__(self, answers: TextIO | None = None, problems: TextIO | None = None) -> None:
        self._answers = _console(answers or sys.stdout)
        self._problems = _console(problems or sys.stderr)

    def show(self, value: Shown) -> None:
        with writing():
            self._answers.print(value)

    def note(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._problems.print(text, style="dim")

    @contextlib.contextmanager
    def screen(self) -> Iterator[Callable[[Shown], None] | None]:
        if not self._answers.is_terminal:
            yield None
            return
        with Live(console=self._answers, auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda value: live.update(value, refresh=True)

    def fail(self, problem: Problem) -> None:
        said = Text.assemble(("error:", "bold red"), " ", problem.error)
        if problem.hint:
            said.append_text(Text.assemble("\n  ", ("hint:", "bold"), " ", problem.hint))
        with contextlib.suppress(OSError):
            self._problems.print(said)


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 problem`, `2 problems`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def one_line_table(*names: str, cut: Sequence[str]) -> Table:
    """A table whose rows take one line each. Where room is short, the columns of `cut` are cut, the longest first."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(Text(name, no_wrap=True, overflow="ellipsis"), no_wrap=name not in cut)
    return table


def cell(text: str) -> Text:
    """In a table with a line a row: cut rather than continued on the next line."""
    return Text(" ".join(text.split()), no_wrap=True, overflow="ellipsis")


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH_CHARACTERS
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=not stream.isatty())


def output_for(*, json: bool) -> Output:
    return JsonOutput() if json else ConsoleOutput()

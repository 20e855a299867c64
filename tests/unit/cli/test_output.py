from __future__ import annotations

import io

import msgspec
from rich.console import RenderableType

from tutti.cli.output import ConsoleOutput, JsonOutput, Problem, output_for


class Sum(msgspec.Struct, frozen=True):
    total: int
    remark: str = ""

    def __rich__(self) -> RenderableType:
        return f"the sum is {self.total} {self.remark}"


class Wrapped(msgspec.Struct, frozen=True):
    inner: dict[str, int]

    def as_json(self) -> object:
        return self.inner

    def __rich__(self) -> RenderableType:
        return "wrapped"


def test_json_is_one_object_a_line_and_no_notes() -> None:
    answers, problems = io.StringIO(), io.StringIO()
    output = JsonOutput(answers, problems)
    output.note("working")
    output.show(Sum(3))
    output.show(Wrapped({"a": 1}))
    output.fail(Problem("no", "yes", "Refused"))
    assert answers.getvalue() == '{"total":3,"remark":""}\n{"a":1}\n'
    assert problems.getvalue() == '{"error":"no","hint":"yes","kind":"Refused"}\n'


def test_people_see_how_a_value_looks_and_texts_are_never_markup() -> None:
    answers, problems = io.StringIO(), io.StringIO()
    output = ConsoleOutput(answers, problems)
    output.show(Sum(3, "[bold]:smile:[/bold]"))
    output.note("working [x]")
    output.fail(Problem("no [red]", "yes"))
    assert answers.getvalue() == "the sum is 3 [bold]:smile:[/bold]\n"
    assert problems.getvalue() == "working [x]\nerror: no [red]\n  hint: yes\n"


def test_the_form_is_chosen_once() -> None:
    assert isinstance(output_for(json=True), JsonOutput)
    assert isinstance(output_for(json=False), ConsoleOutput)

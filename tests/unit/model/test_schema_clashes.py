"""The evolution rules, one by one. Each is also proven on events: what does not clash is read by both sides."""

from __future__ import annotations

import enum
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest

from tutti.model.schema import json_schema
from tutti.model.schema_clashes import same_values, schema_clashes


class Small(enum.Enum):
    A = "a"


class Large(enum.Enum):
    A = "a"
    B = "b"


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    name: str


class OldPart(msgspec.Struct):
    x: int
    gone: int = 0


class NewPart(msgspec.Struct):
    x: int
    come: str = ""


class OtherPart(msgspec.Struct):
    x: str


class OldTree(msgspec.Struct):
    value: int
    children: list[OldTree] = []


class NewTree(msgspec.Struct):
    value: int
    children: list[NewTree] = []
    label: str = ""


class OtherTree(msgspec.Struct):
    value: str
    children: list[OtherTree] = []


Fields = list[Any]


def schema(fields: Fields) -> dict[str, Any]:
    return json_schema(msgspec.defstruct("Type", fields))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param([("a", str)], [("a", str)], id="nothing changed"),
        pytest.param([("a", str)], [("a", str), ("b", int, 0)], id="optional field added"),
        pytest.param([("a", str), ("b", int, 0)], [("a", str)], id="optional field removed"),
        pytest.param([("b", int, 0)], [("b", int, 5)], id="default changed"),
        pytest.param([("a", str), ("b", int)], [("b", int), ("a", str)], id="order changed"),
        pytest.param([("p", OldPart)], [("p", NewPart)], id="optional fields of a part, and its class's name"),
        pytest.param([("p", list[OldPart])], [("p", list[NewPart])], id="parts in a list"),
        pytest.param([("p", dict[str, OldPart])], [("p", dict[str, NewPart])], id="parts in a dict"),
        pytest.param([("p", tuple[int, OldPart])], [("p", tuple[int, NewPart])], id="parts in a tuple"),
        pytest.param([("p", OldPart | None)], [("p", NewPart | None)], id="parts in an optional"),
        pytest.param([("t", OldTree)], [("t", NewTree)], id="a type that contains itself"),
        pytest.param([("p", Cat | Dog)], [("p", Dog | Cat)], id="order of a union"),
        pytest.param([("p", int | None)], [("p", None | int)], id="order of an optional"),
        pytest.param([("e", Small)], [("e", Literal["a"])], id="an enum by another name"),
        pytest.param([("a", Any)], [("a", Any)], id="anything"),
    ],
)
def test_changes_that_go_together(old: Fields, new: Fields) -> None:
    assert schema_clashes(schema(old), schema(new)) == ()
    assert schema_clashes(schema(new), schema(old)) == ()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ([], [("a", str)], "field `a`: it was added without a default, but old events lack it"),
        ([("a", str)], [], "field `a`: it was removed, but old subscribers require it"),
        ([("a", str)], [("a", str, "")], "field `a`: it is now optional, but old subscribers require it"),
        ([("a", str, "")], [("a", str)], "field `a`: it is now required, but old events may lack it"),
        ([("a", str)], [("a", int)], "field `a`: its type changed from string to integer"),
        ([("a", int)], [("a", float)], "field `a`: its type changed from integer to number"),
        ([("a", str)], [("a", datetime)], "field `a`: its type changed from string to string (date-time)"),
        ([("a", str)], [("a", time)], "field `a`: its type changed from string to string (time)"),
        (
            [("a", datetime)],
            [("a", Annotated[datetime, msgspec.Meta(tz=True)])],
            "field `a`: x-offset changed from optional",
        ),
        (
            [("a", list[str])],
            [("a", list[datetime])],
            "field `a[]`: its type changed from string to string (date-time)",
        ),
        ([("a", str | None)], [("a", time | None)], "field `a`: string is no longer allowed"),
        ([("a", dict[str, int])], [("a", dict[date, int])], "field `a`: propertyNames changed"),
        ([("a", float)], [("a", Decimal)], "field `a`: its type changed from number to string (decimal)"),
        ([("a", str)], [("a", bytes)], "field `a`: its type changed from string to string (base64)"),
        ([("a", str)], [("a", Small)], "field `a`: its type changed from string to enum (string)"),
        ([("a", Any)], [("a", int)], "field `a`: its type changed from anything to integer"),
        ([("a", str)], [("a", str | None)], "field `a`: null is now allowed, but old subscribers cannot read it"),
        ([("a", str | None)], [("a", str)], "field `a`: null is no longer allowed, but old events may hold it"),
        ([("e", Small)], [("e", Large)], "field `e`: the value 'b' was added, but old subscribers do not know it"),
        ([("e", Large)], [("e", Small)], "field `e`: the value 'b' was removed, but old events may hold it"),
        ([("p", Cat)], [("p", Cat | Dog)], "field `p`: object (type=dog) is now allowed, but old subscribers cannot"),
        ([("p", Cat | Dog)], [("p", Cat)], "field `p`: object (type=dog) is no longer allowed, but old events may"),
        ([("p", Cat)], [("p", Dog)], "field `p.type`: the value 'cat' was removed, but old events may hold it"),
        ([("p", OldPart)], [("p", OtherPart)], "field `p.x`: its type changed from integer to string"),
        ([("p", list[OldPart])], [("p", list[OtherPart])], "field `p[].x`: its type changed"),
        ([("p", dict[str, int])], [("p", dict[str, str])], "field `p[]`: its type changed from integer to string"),
        ([("p", tuple[int, int])], [("p", tuple[int, str])], "field `p[1]`: its type changed"),
        ([("p", tuple[int, int])], [("p", tuple[int])], "field `p`: maxItems changed from 2 to 1"),
        ([("p", list[int])], [("p", tuple[int, int])], "field `p[]`: items changed"),
        ([("t", OldTree)], [("t", OtherTree)], "field `t.value`: its type changed from integer to string"),
        (
            [("n", Annotated[int, msgspec.Meta(le=9)])],
            [("n", Annotated[int, msgspec.Meta(le=5)])],
            "field `n`: maximum changed from 9 to 5",
        ),
        ([("n", Annotated[int, msgspec.Meta(le=9)])], [("n", int)], "field `n`: maximum changed from 9 to None"),
    ],
)
def test_changes_that_do_not(old: Fields, new: Fields, says: str) -> None:
    found = schema_clashes(schema(old), schema(new))
    assert any(sentence.startswith(says) for sentence in found), found
    assert schema_clashes(schema(new), schema(old))  # it clashes in whichever order the two appear


def test_every_clash_is_told() -> None:
    found = schema_clashes(schema([("a", str), ("b", int), ("c", int)]), schema([("a", int), ("c", str), ("d", int)]))
    assert [sentence.split("`")[1] for sentence in found] == ["b", "d", "a", "c"]


def test_same_values() -> None:
    one = schema([("a", str), ("p", OldPart)])
    assert same_values(one, schema([("a", str), ("p", OldPart)]))
    assert not same_values(one, schema([("a", str), ("p", NewPart)]))
    assert not same_values(one, schema([("a", str), ("p", OldPart), ("b", int, 0)]))
    assert not same_values(schema([("a", str), ("p", OldPart), ("b", int, 0)]), one)
    assert same_values(schema([("b", int, 0)]), schema([("b", int, 5)]))

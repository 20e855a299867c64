"""The JSON Schema of a class: what msgspec leaves out is there."""

from __future__ import annotations

import dataclasses
import enum
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from tutti.model.schema import json_schema

MOMENT = {"type": "string", "format": "date-time", "x-offset": "optional"}
CLOCK = {"type": "string", "format": "time", "x-offset": "optional"}


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    at: datetime
    number: int


class Row(TypedDict):
    at: datetime


@dataclasses.dataclass
class Label:
    at: time


class Node(msgspec.Struct):
    at: datetime
    children: list[Node] = []


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (datetime, MOMENT),
        (Annotated[datetime, msgspec.Meta(tz=True)], {"type": "string", "format": "date-time"}),
        (Annotated[datetime, msgspec.Meta(tz=False)], {"type": "string", "format": "date-time", "x-offset": "none"}),
        (time, CLOCK),
        (datetime | None, {"anyOf": [MOMENT, {"type": "null"}]}),
        (time | int | None, {"anyOf": [CLOCK, {"type": "integer"}, {"type": "null"}]}),
        (list[datetime], {"type": "array", "items": MOMENT}),
        (list[datetime] | None, {"anyOf": [{"type": "array", "items": MOMENT}, {"type": "null"}]}),
        (tuple[datetime, ...], {"type": "array", "items": MOMENT}),
        (dict[str, datetime], {"type": "object", "additionalProperties": MOMENT}),
        (
            dict[date, int],
            {"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"x-kind": "date"}},
        ),
        (
            dict[Colour, Any] | None,
            {"anyOf": [{"type": "object", "propertyNames": {"enum": ["red"]}}, {"type": "null"}]},
        ),
        (dict[Literal["b", "a"], Any], {"type": "object", "propertyNames": {"enum": ["a", "b"]}}),
        (list, {"type": "array"}),
        (str, {"type": "string"}),
        (Literal["a"] | None, {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
    ],
)
def test_fields(annotation: Any, expected: dict[str, Any]) -> None:
    schema = json_schema(msgspec.defstruct("Type", [("field", annotation)]))
    assert schema["$ref"] == "#/$defs/Type"
    assert schema["$defs"]["Type"]["properties"]["field"] == expected


def test_tuples() -> None:
    schema = json_schema(msgspec.defstruct("Type", [("field", tuple[int, datetime])]))
    assert schema["$defs"]["Type"]["properties"]["field"]["prefixItems"] == [{"type": "integer"}, MOMENT]


def test_parts() -> None:
    fields = [("pair", Pair), ("row", Row), ("labels", list[Label]), ("node", Node | None)]
    parts = json_schema(msgspec.defstruct("Type", fields))["$defs"]
    assert set(parts) == {"Type", "Pair", "Row", "Label", "Node"}
    assert parts["Pair"]["prefixItems"] == [MOMENT, {"type": "integer"}]
    assert parts["Row"]["properties"]["at"] == MOMENT
    assert parts["Label"]["properties"]["at"] == CLOCK
    assert parts["Node"]["properties"]["at"] == MOMENT
    assert parts["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_two_schemas_share_nothing() -> None:
    one = json_schema(Node)
    one["$defs"].clear()
    assert json_schema(Node)["$defs"]

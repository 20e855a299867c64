"""What may be declared as an event type, and what is refused with a reason."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from tutti.errors import DeclarationError
from tutti.model.declaration import RoutingAttribute, examine
from tutti.model.event import Event, EventMeta, event_type, key, routing


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Part(msgspec.Struct):
    text: str


class Branch(msgspec.Struct):
    branches: list[Branch] = []


class Row(TypedDict):
    text: str


class Pair(NamedTuple):
    left: int
    right: Branch


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (object, "cannot be carried"),
        (Callable[[], int], "cannot be carried"),
        (complex, "cannot be carried"),
        (msgspec.Raw, "cannot be carried"),
        (memoryview, "cannot be carried"),
        (dict[str, list[complex]], r"field\[\]\[\]"),
        (Annotated[list[str], routing], "cannot be a routing attribute"),
        (Annotated[dict[str, str], routing], "cannot be a routing attribute"),
        (Annotated[Part, routing], "cannot be a routing attribute"),
        (Annotated[bytes, routing], "cannot be a routing attribute"),
        (Annotated[Any, routing], "cannot be a routing attribute"),
        (Annotated[int | str, routing], "cannot be a routing attribute"),
        (Annotated[str, routing] | None, "stands inside the type"),
        (list[Annotated[str, key]], "stands inside the type"),
        (Annotated[set[int], key], "cannot be a key"),
        ("Nowhere", "names something unknown"),
        (int | Annotated[str, 1] | list[str] | list[int], "cannot be an event type"),
    ],
)
def test_fields_that_cannot_work(annotation: Any, says: str) -> None:
    odd = EventMeta("Odd", (Event,), {"__annotations__": {"field": annotation}, "__module__": __name__})
    with pytest.raises(DeclarationError, match=says):
        event_type(odd)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, "string"),
        (int, "integer"),
        (bool, "boolean"),
        (float, "float"),
        (Decimal, "decimal"),
        (date, "date"),
        (datetime, "datetime"),
        (uuid.UUID, "uuid"),
        (Side, "string"),
        (enum.IntEnum("Level", {"LOW": 1, "HIGH": 2}), "integer"),
        (Literal["a", "b"], "string"),
        (Literal[1, 2], "integer"),
        (Annotated[str, msgspec.Meta(max_length=4)], "string"),
    ],
)
def test_kinds_of_routing_attributes(annotation: Any, kind: Any) -> None:
    for wanted, optional in ((annotation, False), (annotation | None, True)):
        routed = EventMeta("Routed", (Event,), {"__annotations__": {"field": Annotated[wanted, routing]}})
        assert event_type(routed).routing == (RoutingAttribute("field", kind, optional),)


def test_at_most_eight_routing_attributes_and_one_key() -> None:
    nine = {f"field{i}": Annotated[str, routing] for i in range(9)}
    with pytest.raises(DeclarationError, match="9 routing attributes; the limit is 8"):
        event_type(EventMeta("Nine", (Event,), {"__annotations__": nine}))
    two = {"one": Annotated[str, key], "other": Annotated[str, key]}
    with pytest.raises(DeclarationError, match="2 keys: one, other"):
        event_type(EventMeta("Two", (Event,), {"__annotations__": two}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"array_like": True}, "array_like"),
        ({"forbid_unknown_fields": True}, "forbid_unknown_fields"),
        ({"rename": "camel"}, "renamed to 'twoWords'"),
    ],
)
def test_structs_that_could_not_evolve(options: dict[str, Any], says: str) -> None:
    part = msgspec.defstruct("Part", [("two_words", str)], **options)
    with pytest.raises(DeclarationError, match=says):
        event_type(part)
    with pytest.raises(DeclarationError, match=says):
        event_type(msgspec.defstruct("Whole", [("parts", list[part])]))  # type: ignore[valid-type]  # made above


def test_a_name_that_filters_need() -> None:
    with pytest.raises(DeclarationError, match=r"\.ce: this name is reserved"):
        event_type(msgspec.defstruct("Taken", [("ce", str)]))


@pytest.mark.parametrize(
    ("annotation", "unbounded"),
    [
        (str, False),
        (list[Part], False),
        (Any, True),
        (dict[str, Any], True),
        (Branch, True),
        (Pair, True),
        (Row, False),
    ],
)
def test_knows_whether_values_can_be_nested_without_end(annotation: Any, unbounded: bool) -> None:
    cls = msgspec.defstruct("Holder", [("first", annotation), ("second", annotation)])
    assert examine(cls, routing, key).unbounded is unbounded


def test_typed_dicts_are_parts_but_no_events() -> None:
    assert examine(msgspec.defstruct("Holder", [("row", Row)]), routing, key).names == ("row",)
    with pytest.raises(DeclarationError, match="Row cannot be an event type: its values are not structs"):
        examine(Row, routing, key)


def test_the_markers_show_how_they_are_written() -> None:
    assert (repr(routing), repr(key)) == ("tutti.routing", "tutti.key")

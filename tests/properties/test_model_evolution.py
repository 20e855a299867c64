"""What does not clash is understood by both sides: old readers read new events, and new readers old ones."""

from __future__ import annotations

import enum
import itertools
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from tutti.model.schema import json_schema
from tutti.model.schema_clashes import same_values, schema_clashes


class Small(enum.Enum):
    A = "a"


class Large(enum.Enum):
    A = "a"
    B = "b"


class Cat(msgspec.Struct, tag="cat"):
    name: str = ""


class Dog(msgspec.Struct, tag="dog"):
    name: str = ""


class Part(msgspec.Struct):
    x: int = 0


class LongerPart(msgspec.Struct):
    x: int = 0
    y: str = ""


class OtherPart(msgspec.Struct):
    x: str = ""


# For each kind, values that fill its corners.
KINDS: dict[Any, list[Any]] = {
    int: [5, -1],
    float: [1.5, 2.0],
    str: ["", "a", "text"],
    bool: [True],
    bytes: [b"a"],
    Decimal: [Decimal("1.5")],
    datetime: [datetime(2026, 1, 1, tzinfo=UTC)],
    date: [date(2026, 1, 1)],
    time: [time(12)],
    Small: [Small.A],
    Large: [Large.A, Large.B],
    Literal["a"]: ["a"],
    Annotated[int, msgspec.Meta(le=3)]: [3],
    int | None: [5, None],
    str | None: ["a", None],
    Cat: [Cat()],
    Cat | Dog: [Cat(), Dog()],
    Part: [Part(1)],
    LongerPart: [LongerPart(1, "y")],
    OtherPart: [OtherPart("z")],
    Part | None: [Part(1), None],
    list[Part]: [[Part(1)]],
    list[LongerPart]: [[LongerPart(1, "y")]],
    list[OtherPart]: [[OtherPart("z")]],
    dict[str, int]: [{"a": 1}],
    dict[int, int]: [{1: 1}],
    dict[str, Part]: [{"a": Part(1)}],
    tuple[int, int]: [(1, 2)],
    tuple[int, str]: [(1, "a")],
    list[int]: [[1, 2, 3]],
}
fields = st.fixed_dictionaries(
    {}, optional={name: st.tuples(st.sampled_from(list(KINDS)), st.booleans()) for name in ("a", "b")}
)


def declared(wanted: dict[str, tuple[Any, bool]]) -> type[msgspec.Struct]:
    def field(name: str) -> Any:
        kind, optional = wanted[name]
        return (name, kind, msgspec.field(default_factory=lambda: KINDS[kind][0])) if optional else (name, kind)

    return msgspec.defstruct("Type", [field(name) for name in sorted(wanted)], kw_only=True)


def events(wanted: dict[str, tuple[Any, bool]]) -> list[bytes]:
    """Each corner of each field, and every optional field left out once, as another publisher may do."""
    made = []
    for turn in range(3):
        values = {name: KINDS[kind][turn % len(KINDS[kind])] for name, (kind, _) in wanted.items()}
        made.append(msgspec.json.encode(values))
        required = {name: value for name, value in values.items() if not wanted[name][1]}
        made.append(msgspec.json.encode(required))
    return made


@given(fields, fields)
@settings(max_examples=400)
def test_no_clash_means_that_both_sides_understand(
    old: dict[str, tuple[Any, bool]], new: dict[str, tuple[Any, bool]]
) -> None:
    old_class, new_class = declared(old), declared(new)
    clashes = schema_clashes(json_schema(old_class), json_schema(new_class))
    note("clash" if clashes else "no clash")
    if not clashes:
        for data in events(old):
            msgspec.json.decode(data, type=new_class)
        for data in events(new):
            msgspec.json.decode(data, type=old_class)
    assert bool(clashes) == bool(schema_clashes(json_schema(new_class), json_schema(old_class)))


def test_every_pair_of_kinds() -> None:
    """What the property finds by chance, once without it: one required field, of every kind and every other."""
    together = set()
    for (old, old_values), (new, new_values) in itertools.product(KINDS.items(), repeat=2):
        old_class, new_class = declared({"a": (old, False)}), declared({"a": (new, False)})
        if schema_clashes(json_schema(old_class), json_schema(new_class)):
            continue
        together.add((str(old), str(new)))
        for value in old_values:
            msgspec.json.decode(msgspec.json.encode({"a": value}), type=new_class)
        for value in new_values:
            msgspec.json.decode(msgspec.json.encode({"a": value}), type=old_class)
    different = {pair for pair in together if pair[0] != pair[1]}
    assert len(together) == len(KINDS) + len(different)
    assert {frozenset(pair) for pair in different} == {
        frozenset({str(Small), str(Literal["a"])}),
        frozenset({str(Part), str(LongerPart)}),
        frozenset({str(list[Part]), str(list[LongerPart])}),
    }


@given(fields)
def test_a_type_goes_together_with_itself(wanted: dict[str, tuple[Any, bool]]) -> None:
    one, other = json_schema(declared(wanted)), json_schema(declared(wanted))
    assert schema_clashes(one, other) == ()
    assert same_values(one, other)

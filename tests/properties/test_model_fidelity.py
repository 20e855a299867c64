"""Every value survives the way over the wire, or is refused before it leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tutti.errors import InvalidEvent
from tutti.model.event import EventType, event_type


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    weight: float | None


@dataclasses.dataclass
class Label:
    text: str
    tags: frozenset[str] = frozenset()


texts = st.text(st.characters(exclude_categories=())) | st.sampled_from(["\ud800", "\x00", "\ufeff", "😀", ""])
floats = st.floats()
zones = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=-5, minutes=-30)), timezone(timedelta(seconds=30)), ZoneInfo("Europe/Berlin")]
)
moments = st.datetimes(timezones=zones, allow_imaginary=True) | st.builds(
    lambda fold: datetime(2023, 10, 29, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin")), st.sampled_from([0, 1])
)
clocks = st.times(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=1))]))
decimals = st.decimals() | st.sampled_from([Decimal("sNaN"), Decimal("-0"), Decimal("1E+999999"), Decimal("1.50")])
numbers = st.integers() | st.integers(-(2**200), 2**200) | st.booleans()
anything = st.recursive(
    st.none() | st.booleans() | numbers | floats | texts | st.binary() | decimals | moments,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(texts | numbers, inner),
    max_leaves=8,
)

# What is declared, what is put there (not always what is declared), and whether the type says so itself.
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, texts),
    (int, numbers | floats),
    (float, floats | numbers),
    (float | None, floats | st.none()),
    (int | float, numbers | floats),
    (bool, st.booleans() | st.integers(0, 1)),
    (Decimal, decimals | floats | st.integers()),
    (datetime, moments | st.dates()),
    (date, st.dates() | moments),
    (time, clocks),
    (timedelta, st.timedeltas()),
    (uuid.UUID, st.uuids() | st.text()),
    (bytes, st.binary() | st.builds(bytearray, st.binary())),
    (Colour, st.sampled_from(Colour) | st.just("red")),
    (Level, st.sampled_from(Level) | st.integers(0, 3)),
    (Cat | Dog, st.builds(Cat, numbers) | st.builds(Dog, floats | st.none())),
    (Label, st.builds(Label, texts, st.frozensets(texts) | st.sets(texts))),
    (list[float], st.lists(floats) | st.tuples(floats)),
    (tuple[int, str], st.tuples(numbers, texts) | st.lists(numbers)),
    (tuple[Decimal, ...], st.lists(decimals).map(tuple)),
    (set[str], st.sets(texts)),
    (frozenset[int], st.frozensets(numbers)),
    (dict[str, float], st.dictionaries(texts, floats)),
    (dict[int, str], st.dictionaries(numbers, texts)),
    (dict[float, int], st.dictionaries(floats, st.integers())),
    (dict[date, bool], st.dictionaries(st.dates() | st.datetimes(), st.booleans())),
    (Any, anything),
    (list[Any] | None, anything),
]


def declared(annotation: Any) -> EventType:
    return event_type(msgspec.defstruct("Sample", [("field", annotation)], frozen=True))


def same(sent: Any, received: Any) -> bool:
    """What "the same value" means, said again from scratch: equal, and moments at the same instant."""
    if isinstance(sent, datetime) and isinstance(received, datetime) and sent.tzinfo and received.tzinfo:
        return sent.utctimetuple() == received.utctimetuple() and sent.microsecond == received.microsecond
    if isinstance(sent, dict) and isinstance(received, dict):
        return sent.keys() == received.keys() and all(same(part, received[key]) for key, part in sent.items())
    if isinstance(sent, list | tuple) and type(sent) is type(received):
        return len(sent) == len(received) and all(map(same, sent, received))
    return bool(sent == received)


@pytest.mark.parametrize(("annotation", "values"), KINDS, ids=[str(annotation) for annotation, _ in KINDS])
def test_a_value_arrives_as_it_was_sent_or_does_not_leave(annotation: Any, values: st.SearchStrategy[Any]) -> None:
    kind = declared(annotation)
    accepted = 0

    @given(values)
    @settings(max_examples=80)
    def check(value: Any) -> None:
        nonlocal accepted
        try:
            data = kind.encode(kind.python(value))
        except InvalidEvent:
            return
        accepted += 1
        arrived = kind.decode(data).field
        assert same(value, arrived), (value, arrived)
        kind.encode(kind.python(arrived))  # it can be sent on

    check()
    assert accepted  # a kind of which nothing is accepted would prove nothing


@given(st.floats())
@example(math.nan)
@example(-0.0)
def test_numbers_that_json_knows_are_never_refused(number: float) -> None:
    kind = declared(float)
    if math.isfinite(number):
        arrived = kind.decode(kind.encode(kind.python(number))).field
        assert arrived == number
        assert math.copysign(1, arrived) == math.copysign(1, number)
    else:
        with pytest.raises(InvalidEvent):
            kind.encode(kind.python(number))


@given(moments)
def test_moments_are_refused_only_for_offsets_of_seconds(moment: datetime) -> None:
    kind = declared(datetime)
    offset = moment.utcoffset()
    if offset is None or offset.seconds % 60 == 0:
        assert same(moment, kind.decode(kind.encode(kind.python(moment))).field)
    else:
        with pytest.raises(InvalidEvent):
            kind.encode(kind.python(moment))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for annotation in (Any, dict[str, int], Cat | Dog):
        kind = declared(annotation)
        with contextlib.suppress(InvalidEvent):
            kind.encode(kind.decode(data))

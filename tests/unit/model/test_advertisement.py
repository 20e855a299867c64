"""Advertisements: what they say, and which may follow which."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from tutti.model.advertisement import Advertisement, advertise, clashes, succeed
from tutti.model.declaration import RoutingAttribute
from tutti.model.event import Event, event_type, key, routing


class Trade(Event, version=2, stream="trades", lifetime=60, priority=3):
    """A trade was done."""

    symbol: Annotated[str, routing, key]
    pair: tuple[int, str] = (1, "one")


KNOWN = advertise(event_type(Trade))


def version(number: int, *fields: Any) -> Advertisement:
    schema = msgspec.json.schema(msgspec.defstruct("Trade", fields))
    return Advertisement("Trade", number, schema)


def test_says_everything_about_the_type() -> None:
    assert KNOWN.type == "Trade"
    assert (KNOWN.version, KNOWN.stream, KNOWN.grade, KNOWN.key) == (2, "trades", "at_least_once", "symbol")
    assert (KNOWN.lifetime, KNOWN.priority, KNOWN.routing) == (60, 3, (RoutingAttribute("symbol", "string"),))
    assert KNOWN.schema["$defs"]["Trade"]["required"] == ["symbol"]
    assert KNOWN.schema["$defs"]["Trade"]["description"] == "A trade was done."


def test_survives_being_kept() -> None:
    assert msgspec.json.decode(msgspec.json.encode(KNOWN), type=Advertisement) == KNOWN


def test_the_same_again() -> None:
    assert clashes(KNOWN, advertise(event_type(Trade))) == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"routing": ()}, "the routing attributes changed from symbol (string) to none"),
        (
            {"routing": (RoutingAttribute("symbol", "string", optional=True),)},
            "the routing attributes changed from symbol (string) to symbol (string, optional)",
        ),
        ({"key": None}, "the key changed from symbol to none"),
        ({"stream": "events"}, "the stream changed from trades to events"),
        ({"grade": "best_effort"}, "the grade changed from at_least_once to best_effort"),
        ({"type": "Trades"}, "the type is called Trades, not Trade"),
    ],
)
def test_where_events_lie_may_not_change(changes: dict[str, Any], says: str) -> None:
    assert clashes(KNOWN, msgspec.structs.replace(KNOWN, version=3, **changes)) == (says,)


def test_lifetime_and_priority_may_change_without_a_new_version() -> None:
    assert clashes(KNOWN, msgspec.structs.replace(KNOWN, lifetime=None, priority=0)) == ()


def test_a_changed_schema_needs_a_higher_version() -> None:
    old, new = version(1, ("a", str)), version(1, ("a", str), ("b", int, 0))
    assert clashes(old, new) == ("the fields changed, but the version is still 1: declare version=2",)
    assert clashes(old, msgspec.structs.replace(new, version=2)) == ()


def test_a_higher_version_does_not_excuse_a_clash() -> None:
    found = clashes(version(1, ("a", str)), version(2, ("a", int)))
    assert found == ("field `a`: its type changed from string to integer",)


def test_an_old_publisher_may_come_back() -> None:
    newest, old = version(2, ("a", str), ("b", int, 0)), version(1, ("a", str))
    assert clashes(newest, old) == ()
    assert succeed(newest, old).version == 2
    assert succeed(newest, old).schema == newest.schema


def test_an_old_publisher_that_clashes_is_told_in_order_of_versions() -> None:
    found = clashes(version(2, ("a", str), ("b", int)), version(1, ("a", str)))
    assert found == ("field `b`: it was added without a default, but old events lack it",)


def test_a_dropped_field_does_not_come_back_as_something_else() -> None:
    first, second = version(1, ("a", str), ("b", int, 0)), version(2, ("a", str))
    third = version(3, ("a", str), ("b", str, ""))
    assert clashes(second, third) == ()
    kept = succeed(first, second)
    assert clashes(kept, third) == ("field `b`: its type changed from integer to string",)
    assert clashes(kept, version(3, ("a", str), ("b", int, 7))) == ()


def test_what_is_kept_changes_only_when_something_new_comes() -> None:
    first, second = version(1, ("a", str)), version(2, ("a", str), ("b", int, 0))
    kept = succeed(first, second)
    assert kept.earlier == (first.schema,)
    assert succeed(kept, second) == kept
    assert succeed(kept, first) == kept
    assert succeed(first, first) == first
    third = version(3, ("a", str), ("c", int, 0))
    assert succeed(kept, third).earlier == (first.schema, second.schema)


class Node(Event):
    name: str
    parent: Node | None = None
    children: tuple[Node, ...] = ()


def test_a_type_that_contains_itself_can_be_advertised_again() -> None:
    known = advertise(event_type(Node))
    assert clashes(known, advertise(event_type(Node))) == ()

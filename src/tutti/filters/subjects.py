"""Which subjects must the servers send, so that no event that a filter lets pass is missed?

1. Only an equality between a routing attribute and a literal of its own kind narrows a subject: no cast then stands
   between the literal and the token that the publisher made of the value. Everything else leaves the token open.
2. A server refuses a consumer whose filter subjects overlap. Where two would, one that covers both takes their place.
3. There are at most FILTER_SUBJECTS_MAX_COUNT: beyond that the attribute with the most values is left open.

The filter is evaluated again at the subscriber: sending too much is harmless, sending too little is the only error.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Final, TypeAlias, assert_never

from tutti.filters.conditions import Begins, Equals, Predicate, Way, ways
from tutti.filters.expression import Expression
from tutti.filters.values import FaultRaised, Value, to_timestamp
from tutti.limits import FILTER_SUBJECTS_MAX_COUNT
from tutti.model.declaration import RoutingAttribute
from tutti.model.subjects import token

Tokens: TypeAlias = tuple[str, ...]

OPEN: Final = "*"


def subject_tokens(expression: Expression, attributes: Sequence[RoutingAttribute]) -> tuple[Tokens, ...]:
    """Tuples of tokens, one token for each attribute, `*` for any: every event that can pass fits one of them, and no
    event fits two. None at all means that no event can pass."""
    wanted = {tokens for way in ways(expression) for tokens in _way_tokens(way, attributes)}
    return tuple(_apart(_limited(wanted)))


def _way_tokens(way: Way, attributes: Sequence[RoutingAttribute]) -> list[Tokens]:
    """The product of what each attribute may be; an attribute that would make it too large is left open."""
    products: list[Tokens] = [()]
    for attribute in attributes:
        allowed: set[str] | None = None
        for predicate in way:
            tokens = _tokens(predicate, attribute) if predicate.name == attribute.name else None
            if tokens is not None:
                allowed = tokens if allowed is None else allowed & tokens
        choices = [OPEN] if allowed is None else sorted(allowed)
        if len(products) * len(choices) > FILTER_SUBJECTS_MAX_COUNT:
            choices = [OPEN]
        products = [(*tokens, choice) for tokens in products for choice in choices]
    return products


def _tokens(predicate: Predicate, attribute: RoutingAttribute) -> set[str] | None:
    """The tokens that values of an attribute have if they satisfy a predicate; None if that is not known."""
    match predicate:
        case Equals():
            found = [_value_token(value, attribute) for value in predicate.values]
            return {made for made in found if made} if None not in found else None
        case Begins(whole=True) if attribute.kind in {"string", "uuid"}:
            return {token(predicate.prefix)}
        case _:
            return None


def _value_token(value: Value, attribute: RoutingAttribute) -> str | None:
    """The token of a literal of the attribute's own kind, empty if no value of that kind is equal to it."""
    match attribute.kind:
        case "string" | "uuid":
            return token(value) if isinstance(value, str) else None
        case "boolean":
            return token(value) if isinstance(value, bool) else None
        case "integer" | "decimal" | "float":
            return token(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
        case "datetime" | "date":
            moment = _moment(value)
            if moment is None or attribute.kind == "datetime":
                return None if moment is None else token(moment)
            return token(moment.date()) if moment.time() == time() else ""
        case _:
            assert_never(attribute.kind)


def _moment(value: Value) -> datetime | None:
    try:
        return to_timestamp(value, 0).astimezone(UTC)
    except FaultRaised:
        return None


def _apart(wanted: set[Tokens]) -> list[Tokens]:
    """The same subjects or more, none overlapping another."""
    done: list[Tokens] = []
    waiting = sorted(wanted)
    while waiting:
        tokens = waiting.pop()
        clash = next((other for other in done if _overlap(tokens, other)), None)
        if clash is None:
            done.append(tokens)
        else:
            done.remove(clash)
            waiting.append(_covering(tokens, clash))
    return sorted(done)


def _overlap(one: Tokens, other: Tokens) -> bool:
    return all(a == b or OPEN in {a, b} for a, b in zip(one, other, strict=True))


def _covering(one: Tokens, other: Tokens) -> Tokens:
    return tuple(a if a == b else OPEN for a, b in zip(one, other, strict=True))


def _limited(wanted: set[Tokens]) -> set[Tokens]:
    while len(wanted) > FILTER_SUBJECTS_MAX_COUNT:
        places = range(len(next(iter(wanted))))
        widest = max(places, key=lambda place: len({tokens[place] for tokens in wanted} - {OPEN}))
        wanted = {(*tokens[:widest], OPEN, *tokens[widest + 1 :]) for tokens in wanted}
    return wanted

"""What must hold for a filter to let an event pass: a weaker condition that can be looked up instead of evaluated.

`ways(expression)` lists the ways in which a filter can come true; an event that passes satisfies every predicate of at
least one of them. The reverse need not hold: errors, casts and everything that is not a predicate on one field are left
to the evaluator. So whoever uses it finds candidates, misses none, and evaluates those.

Why the steps are sound: an event passes only if nothing that was evaluated had an error. So `NOT` of a comparison means
the opposite comparison, `a OR b` means that one of them came true, `a AND b` means both, and what was read was there.
Every predicate is understood after the casts of the specification: see each class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from tutti.filters.evaluate import Outcome, compile_filter
from tutti.filters.expression import (
    Arithmetic,
    Call,
    Comparator,
    Comparison,
    Constant,
    Exists,
    Expression,
    Identifier,
    Like,
    Logic,
    Negate,
    Not,
    Within,
    children,
    identifiers,
)
from tutti.filters.like import pattern_of
from tutti.filters.resolvers import MappingResolver
from tutti.filters.values import FaultRaised, Number, Value, to_boolean, to_decimal, to_timestamp
from tutti.limits import FILTER_DISJUNCTS_MAX_COUNT


class Equals(msgspec.Struct, frozen=True, gc=False):
    """The field is equal to one of the values: after a cast of the field to the value's kind (`field = value`) or, with
    `values_cast`, of the value to the field's kind (`field IN (values)`, `value = field`)."""

    name: str
    values: tuple[Value, ...]
    values_cast: bool = False


class Between(msgspec.Struct, frozen=True, gc=False):
    """The field, cast to a number or to a timestamp as the bounds are, lies between them; they themselves included."""

    name: str
    low: Number | datetime | None
    high: Number | datetime | None

    @property
    def temporal(self) -> bool:
        return isinstance(self.low if self.low is not None else self.high, datetime)


class Begins(msgspec.Struct, frozen=True, gc=False):
    """The field, cast to text, begins with the prefix, or with `whole` is it."""

    name: str
    prefix: str
    whole: bool = False


class Present(msgspec.Struct, frozen=True, gc=False):
    name: str


class Absent(msgspec.Struct, frozen=True, gc=False):
    name: str


Predicate: TypeAlias = Equals | Between | Begins | Present | Absent
Way: TypeAlias = tuple[Predicate, ...]
Ways: TypeAlias = tuple[Way, ...]

ALWAYS: Final[Ways] = ((),)
NEVER: Final[Ways] = ()

_OPPOSITE: Final[Mapping[Comparator, Comparator]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED: Final[Mapping[Comparator, Comparator]] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def ways(expression: Expression) -> Ways:
    return _ways(expression, wanted=True)


def _ways(node: Expression, *, wanted: bool) -> Ways:
    """The ways in which a node, cast to Boolean, can come out as wanted without an error."""
    match node:
        case Constant() | Call() | Arithmetic() | Negate():
            return _computed(node, wanted=wanted)
        case Identifier():
            return ((Equals(node.name, (wanted,)),),)
        case Exists():
            return ((Present(node.name) if wanted else Absent(node.name),),)
        case Not():
            return _ways(node.operand, wanted=not wanted)
        case Logic():
            return _logic(node, wanted=wanted)
        case Comparison():
            return _comparison(node, node.operator if wanted else _OPPOSITE[node.operator])
        case Like():
            return _like(node, positive=wanted is not node.negated)
        case Within():
            return _within(node, positive=wanted is not node.negated)
        case _:
            assert_never(node)


def _computed(node: Expression, *, wanted: bool) -> Ways:
    outcome = _folded(node)
    if outcome is None:
        return _reads(node)
    try:
        return ALWAYS if outcome.error is None and to_boolean(outcome.value, 0) is wanted else NEVER
    except FaultRaised:
        return NEVER


def _folded(node: Expression) -> Outcome | None:
    """What a part of a filter gives for every event, if it reads none."""
    if isinstance(node, Constant):
        return Outcome(node.value)
    if isinstance(node, Identifier) or identifiers(node):
        return None
    return compile_filter(node, MappingResolver()).evaluate({})


def _reads(*nodes: Expression) -> Ways:
    names = dict.fromkeys(name for node in nodes for name in _read(node))
    return (tuple(Present(name) for name in names),)


def _read(node: Expression) -> Iterable[str]:
    """Names that are read whenever the node is evaluated to its end."""
    match node:
        case Identifier():
            yield node.name
        case Logic() if node.operator != "XOR":
            yield from _read(node.operands[0])
        case Within():
            yield from _read(node.operand)
            yield from _read(node.members[0])
        case _:
            for child in children(node):
                yield from _read(child)


def _logic(node: Logic, *, wanted: bool) -> Ways:
    if node.operator == "XOR":
        if len(node.operands) > 2:
            return _reads(node)
        left, right = node.operands
        return _either(
            _both(_ways(left, wanted=True), _ways(right, wanted=not wanted)),
            _both(_ways(left, wanted=False), _ways(right, wanted=wanted)),
        )
    join = _both if (node.operator == "AND") is wanted else _either
    found = [_ways(operand, wanted=wanted) for operand in node.operands]
    joined = found[0]
    for other in found[1:]:
        joined = join(joined, other)
    return joined


def _either(left: Ways, right: Ways) -> Ways:
    if not left or not right:
        return left or right
    joined = _gathered((*left, *right))
    if len(joined) > FILTER_DISJUNCTS_MAX_COUNT or () in joined:
        return ALWAYS
    return joined


def _gathered(found: Ways) -> Ways:
    """Ways that are one equality each, on the same field, are one way with several values."""
    equalities: dict[tuple[str, bool], dict[tuple[type, Value], Value]] = {}
    rest: list[Way] = []  # equal ways stay: Equals(a, TRUE) and Equals(a, 1) are equal to Python, and not the same
    for way in found:
        match way:
            case (Equals(name, values, values_cast),):
                equalities.setdefault((name, values_cast), {}).update({(type(value), value): value for value in values})
            case _:
                rest.append(way)
    gathered = [(Equals(name, tuple(known.values()), cast),) for (name, cast), known in equalities.items()]
    return (*gathered, *rest)


def _both(left: Ways, right: Ways) -> Ways:
    if len(left) * len(right) > FILTER_DISJUNCTS_MAX_COUNT:
        # Either side alone is a necessary condition too; fewer ways are fewer look-ups.
        return min((side for side in (left, right) if side != ALWAYS), key=len)
    joined = (_narrowed((*one, *other)) for one in left for other in right)
    return tuple(way for way in joined if way is not None)


def _narrowed(way: Way) -> Way | None:
    """Bounds on one field become one interval; None if it is empty. That a field is there is said once, or implied."""
    intervals: dict[tuple[str, bool], Between] = {}
    others: list[Predicate] = []
    for predicate in way:
        if isinstance(predicate, Between):
            key = (predicate.name, predicate.temporal)
            joined = _intersection(intervals[key], predicate) if key in intervals else predicate
            if joined is None:
                return None
            intervals[key] = joined
        else:
            others.append(predicate)
    implied = {predicate.name for predicate in (*intervals.values(), *others) if not isinstance(predicate, Present)}
    kept = [predicate for predicate in others if not isinstance(predicate, Present) or predicate.name not in implied]
    return (*intervals.values(), *kept)


def _intersection(one: Between, other: Between) -> Between | None:
    lows: list[Any] = [bound for bound in (one.low, other.low) if bound is not None]  # all numbers, or all timestamps
    highs: list[Any] = [bound for bound in (one.high, other.high) if bound is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and low > high:
        return None
    return Between(one.name, low, high)


def _comparison(node: Comparison, comparator: Comparator) -> Ways:
    left, right = _folded(node.left), _folded(node.right)
    if left is not None and right is not None:
        return _computed(msgspec.structs.replace(node, operator=comparator), wanted=True)
    if (left is not None and left.error) or (right is not None and right.error):
        return NEVER
    if isinstance(node.left, Identifier) and right is not None:
        return _field_comparison(node.left.name, comparator, right.value, values_cast=False)
    if isinstance(node.right, Identifier) and left is not None:
        return _field_comparison(node.right.name, _MIRRORED[comparator], left.value, values_cast=True)
    return _reads(node)


def _field_comparison(name: str, comparator: Comparator, value: Value, *, values_cast: bool) -> Ways:
    match comparator:
        case "=":
            return ((Equals(name, (value,), values_cast),),)
        case "!=":
            if isinstance(value, bool) and not values_cast:
                return ((Equals(name, (not value,)),),)
            return ((Present(name),),)
        case "<" | "<=" | ">" | ">=":
            bound = _bound(value)
            if bound is None:
                return ((Present(name),),)
            return ((Between(name, None, bound) if comparator in {"<", "<="} else Between(name, bound, None),),)
        case _:
            assert_never(comparator)


def _bound(value: Value) -> Number | datetime | None:
    """A literal as a bound. A text counts as what it can be read as, unless that is both a number and a timestamp: then
    the field decides, and no order is known."""
    if isinstance(value, datetime):
        return value
    number: Number | None = None
    moment: datetime | None = None
    with suppress(FaultRaised):
        number = to_decimal(value, 0)
    with suppress(FaultRaised):
        moment = to_timestamp(value, 0)
    return (number if number is not None else moment) if number is None or moment is None else None


def _like(node: Like, *, positive: bool) -> Ways:
    if not isinstance(node.operand, Identifier) or not positive:
        return _reads(node.operand)
    pattern = pattern_of(node.pattern)
    if pattern.exact is not None:
        return ((Begins(node.operand.name, pattern.exact, whole=True),),)
    return ((Begins(node.operand.name, pattern.prefix),),) if pattern.prefix else _reads(node.operand)


def _within(node: Within, *, positive: bool) -> Ways:
    if not isinstance(node.operand, Identifier) or not positive:
        return _reads(node)
    members = [_folded(member) for member in node.members]
    if None in members:
        return _reads(node)
    values = tuple(member.value for member in members if member is not None and member.error is None)
    return ((Equals(node.operand.name, values, values_cast=True),),) if values else NEVER

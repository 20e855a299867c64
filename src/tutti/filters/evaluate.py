"""From an expression to a function of a record: built once out of small functions, never `eval`.

1. An evaluation gives a value and, if something went wrong, an error. It stops at the first error: the operator at
   fault gives the value that the specification names for it, everything around it the zero value of its own kind.
2. A filter lets an event pass if the value is true and there is no error.
3. AND and OR stop as soon as they know.
4. A node is evaluated at most once for an event, so FILTER_MAX_NODES bounds the steps, except where text is gone
   through: those nodes share a meter per event, which FILTER_MAX_STEPS stops. Filters without such nodes pay nothing.
5. Each node is a `partial` of one of the functions at the end: a third of what a closure takes, and there may be very
   many filters in one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, assert_never

import msgspec

from tutti.filters.expression import (
    Arithmetic,
    Call,
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
    walk,
)
from tutti.filters.functions import Function, find_function
from tutti.filters.like import Matcher, Pattern, matcher_of, pattern_of
from tutti.filters.operators import COMPARE, Compare, calculate, cast_like, equal, ordered
from tutti.filters.resolvers import Resolver
from tutti.filters.values import (
    ZERO,
    Fault,
    FaultKind,
    FaultRaised,
    Kind,
    Number,
    Value,
    absent,
    to_boolean,
    to_integer,
    to_number,
    to_text,
    to_timestamp,
    value_of,
)
from tutti.limits import FILTER_MAX_STEPS, FILTER_STEP_CHARACTERS

R = TypeVar("R")
Run: TypeAlias = Callable[[Any], Any]  # of a record, or of a frame in a metered filter
Test: TypeAlias = Callable[[Any], bool]

_CAST: Final[dict[Kind, Callable[[Value, int], Value]]] = {
    Kind.BOOLEAN: to_boolean,
    Kind.INTEGER: to_integer,
    Kind.NUMBER: to_number,
    Kind.STRING: to_text,
    Kind.TIMESTAMP: to_timestamp,
}


class Outcome(msgspec.Struct, frozen=True):
    """What an evaluation gives: always a value, and the error that stopped it, if one did."""

    value: Value
    error: Fault | None = None


class Evaluator(Generic[R]):
    """A filter, ready for records of one kind. It keeps no state, so threads may share it."""

    __slots__ = ("_metered", "_named_at", "_run", "_zero")

    def __init__(self, root: Expression, run: Run, *, metered: bool) -> None:
        self._run = run
        self._metered = metered
        self._zero = ZERO[result_kind(root)]
        self._named_at = root.position if isinstance(root, Call) else -1

    def matches(self, record: R) -> bool:
        """Whether the filter lets the record pass."""
        try:
            return self._run(_Frame(record) if self._metered else record) is True
        except FaultRaised:
            return False

    def evaluate(self, record: R) -> Outcome:
        try:
            return Outcome(self._run(_Frame(record) if self._metered else record))
        except FaultRaised as raised:
            # Positions are unique within a text, so here it is the outermost function that failed and named a value.
            return Outcome(raised.value if raised.position == self._named_at else self._zero, raised.fault)


class _Frame:
    """A record under a metered filter, with what is left of its steps."""

    __slots__ = ("record", "steps")

    def __init__(self, record: object) -> None:
        self.record = record
        self.steps = FILTER_MAX_STEPS

    def charge(self, characters: int, position: int) -> None:
        self.steps -= 1 + characters // FILTER_STEP_CHARACTERS
        if self.steps < 0:
            raise FaultRaised(FaultKind.GENERIC, f"the filter takes more than {FILTER_MAX_STEPS} steps", position)


def compile_filter(expression: Expression, resolver: Resolver[R]) -> Evaluator[R]:
    metered = any(_is_metered(node) for node, _ in walk(expression))
    return Evaluator(expression, _Compiler(resolver, metered=metered).value(expression), metered=metered)


def result_kind(node: Expression) -> Kind:
    """The kind of every value that a node gives, as far as its text tells."""
    match node:
        case Constant():
            return _kind_of(node.value)
        case Identifier():
            return Kind.ANY
        case Exists() | Not() | Comparison() | Logic() | Like() | Within():
            return Kind.BOOLEAN
        case Negate() | Arithmetic():
            return Kind.NUMBER
        case Call():
            function = find_function(node.function, len(node.arguments))
            return function.returns if function is not None else Kind.ANY
        case _:
            assert_never(node)


def _kind_of(value: Value) -> Kind:
    match value:
        case bool():
            return Kind.BOOLEAN
        case int():
            return Kind.INTEGER
        case str():
            return Kind.STRING
        case Decimal():
            return Kind.NUMBER
        case datetime():
            return Kind.TIMESTAMP


def _is_metered(node: Expression) -> bool:
    match node:
        case Like():
            return pattern_of(node.pattern).floats
        case Call():
            function = find_function(node.function, len(node.arguments))
            return function is not None and Kind.STRING in {*function.parameters, function.variadic}
        case _:
            return False


class _Compiler(Generic[R]):
    """Builds one filter. A name that no record can have becomes a fault when it is evaluated."""

    def __init__(self, resolver: Resolver[R], *, metered: bool) -> None:
        self._resolver = resolver
        self._metered = metered

    def value(self, node: Expression) -> Run:
        match node:
            case Constant():
                return partial(_constant, node.value)
            case Identifier():
                return self._identifier(node)
            case Exists():
                fetch = self._fetch(node.name)
                return partial(_constant, ZERO[Kind.BOOLEAN]) if fetch is None else partial(_exists, fetch)
            case Not():
                return partial(_not, self.cast(node.operand, Kind.BOOLEAN))
            case Negate():
                operand = self.cast(node.operand, Kind.NUMBER)
                return partial(_arithmetic, "-", partial(_constant, 0), operand, node.position)
            case Arithmetic():
                left, right = self.cast(node.left, Kind.NUMBER), self.cast(node.right, Kind.NUMBER)
                return partial(_arithmetic, node.operator, left, right, node.position)
            case Comparison():
                return self._comparison(node)
            case Logic():
                return _logic(node.operator, [self.cast(operand, Kind.BOOLEAN) for operand in node.operands])
            case Like():
                return self._like(node)
            case Within():
                return self._within(node)
            case Call():
                return self._call(node)
            case _:
                assert_never(node)

    def cast(self, node: Expression, kind: Kind) -> Run:
        """The value of a node, cast to a kind unless it is of that kind anyway."""
        given = result_kind(node)
        if kind is Kind.ANY or given is kind or (kind is Kind.NUMBER and given is Kind.INTEGER):
            return self.value(node)
        if kind is Kind.NUMBER and isinstance(node, Identifier):
            fetch = self._fetch(node.name)
            if fetch is not None:
                return partial(_field_as_number, fetch, node)
        return partial(_cast, self.value(node), _CAST[kind], node.position)

    def _fetch(self, name: str) -> Run | None:
        fetch = self._resolver.accessor(name)
        return partial(_framed, fetch) if fetch is not None and self._metered else fetch

    def _identifier(self, node: Identifier) -> Run:
        fetch = self._fetch(node.name)
        if fetch is None:
            return partial(_fail, FaultKind.MISSING_ATTRIBUTE, f"events have no {node.name}", node.position)
        return partial(_identifier, fetch, node)

    def _comparison(self, node: Comparison) -> Run:
        compare = COMPARE[node.operator]
        if isinstance(node.left, Identifier) and isinstance(node.right, Constant):
            fetch = self._fetch(node.left.name)
            if fetch is not None:
                return _field_comparison(node, fetch, node.left, node.right.value)
        left, right = self.value(node.left), self.value(node.right)
        if node.operator in {"=", "!="}:
            return partial(_equal, node.operator == "!=", left, right, node.position)
        return partial(_ordered, compare, left, right, node.position)

    def _like(self, node: Like) -> Run:
        pattern = pattern_of(node.pattern)
        operand = self.cast(node.operand, Kind.STRING)
        if pattern.floats:
            return partial(_like_metered, matcher_of(pattern), pattern, operand, node)
        if isinstance(node.operand, Identifier) and pattern.is_prefix and not node.negated:
            fetch = self._fetch(node.operand.name)
            if fetch is not None:
                return partial(_field_begins, fetch, pattern.prefix, node.operand)
        return partial(_like, matcher_of(pattern), operand, node.negated)

    def _within(self, node: Within) -> Run:
        operand = self.value(node.operand)
        constants = [member.value for member in node.members if isinstance(member, Constant)]
        if len(constants) == len(node.members):
            return _within_constants(operand, constants, node)
        members = tuple((self.value(member), member.position) for member in node.members)
        return partial(_within, operand, members, node.negated)

    def _call(self, node: Call) -> Run:
        function = find_function(node.function, len(node.arguments))
        if function is None:
            what = f"there is no function {node.function} of {len(node.arguments)} arguments"
            return partial(_fail, FaultKind.MISSING_FUNCTION, what, node.position)
        kinds = [*function.parameters, *[function.variadic or Kind.ANY] * len(node.arguments)]
        arguments = tuple(self.cast(argument, kind) for argument, kind in zip(node.arguments, kinds, strict=False))
        return partial(_call_metered if _is_metered(node) else _call, function, arguments, node.position)


def _field_comparison(node: Comparison, fetch: Run, field: Identifier, literal: Value) -> Run:
    """A field against a literal, by far the most frequent node: the usual kinds are compared at once."""
    if node.operator in {"=", "!="}:
        return partial(_field_equal, fetch, type(literal), literal, node.operator == "!=", field, node.position)
    compare = COMPARE[node.operator]
    if type(literal) is int or type(literal) is Decimal:
        return partial(_field_number, fetch, compare, literal, float(literal), field, node.position)
    return partial(_field_ordered, fetch, compare, literal, field, node.position)


def _logic(connective: str, operands: list[Run]) -> Run:
    pair = len(operands) == 2  # the usual case needs no loop
    match connective:
        case "AND":
            return partial(_and, *operands) if pair else partial(_all, tuple(operands))
        case "OR":
            return partial(_or, *operands) if pair else partial(_any, tuple(operands))
        case _:
            return partial(_odd, tuple(operands))


def _within_constants(operand: Run, members: list[bool | int | str | Decimal], node: Within) -> Run:
    """If all members are of one kind, a value of that kind is simply looked up."""
    kinds = {type(member) for member in members}
    homogeneous = len(kinds) == 1 or kinds == {int, Decimal}
    usual = ((int, Decimal) if kinds & {int, Decimal} else tuple(kinds)) if homogeneous else ()
    known: Collection[Value] = tuple(members) if len(members) <= 8 else frozenset(members)
    return partial(_within_known, operand, usual, known, node)


def _framed(fetch: Run, frame: _Frame) -> object:
    return fetch(frame.record)


def _constant(value: Value, _record: Any) -> Value:
    return value


def _fail(kind: FaultKind, what: str, position: int, _record: Any) -> Value:
    raise FaultRaised(kind, what, position)


def _identifier(fetch: Run, field: Identifier, record: Any) -> Value:
    return value_of(fetch(record), field.name, field.position)


def _field_as_number(fetch: Run, field: Identifier, record: Any) -> Number:
    raw = fetch(record)
    if type(raw) is int:
        return raw
    return to_number(value_of(raw, field.name, field.position), field.position)


def _exists(fetch: Run, record: Any) -> bool:
    return not absent(fetch(record))


def _cast(run: Run, cast: Callable[[Value, int], Value], position: int, record: Any) -> Value:
    return cast(run(record), position)


def _not(operand: Run, record: Any) -> bool:
    return not operand(record)


def _arithmetic(sign: str, left: Run, right: Run, position: int, record: Any) -> Number:
    return calculate(sign, left(record), right(record), position)


def _equal(negated: bool, left: Run, right: Run, position: int, record: Any) -> bool:  # noqa: FBT001 (bound by partial)
    return equal(left(record), right(record), position) is not negated


def _ordered(compare: Compare, left: Run, right: Run, position: int, record: Any) -> bool:
    return ordered(compare, left(record), right(record), position)


def _field_equal(  # noqa: PLR0917 (all but the last are bound by partial)
    fetch: Run,
    usual: type,
    literal: Value,
    negated: bool,  # noqa: FBT001 (bound by partial)
    field: Identifier,
    position: int,
    record: Any,
) -> bool:
    raw = fetch(record)
    if type(raw) is usual and usual is not Decimal:
        return (raw == literal) is not negated
    return equal(value_of(raw, field.name, field.position), literal, position) is not negated


def _field_number(  # noqa: PLR0917 (all but the last are bound by partial)
    fetch: Run, compare: Compare, literal: Number, nearest: float, field: Identifier, position: int, record: Any
) -> bool:
    raw = fetch(record)
    kind = type(raw)
    if kind is int or (kind is Decimal and raw.is_finite()):
        return compare(raw, literal)
    if kind is float and raw != nearest and math.isfinite(raw):
        return compare(raw, nearest)  # rounding keeps the order, so only a tie needs the exact decimals
    return ordered(compare, value_of(raw, field.name, field.position), literal, position)


def _field_ordered(  # noqa: PLR0917 (all but the last are bound by partial)
    fetch: Run, compare: Compare, literal: Value, field: Identifier, position: int, record: Any
) -> bool:
    return ordered(compare, value_of(fetch(record), field.name, field.position), literal, position)


def _field_begins(fetch: Run, prefix: str, field: Identifier, record: Any) -> bool:
    raw = fetch(record)
    text = raw if type(raw) is str else to_text(value_of(raw, field.name, field.position), field.position)
    return text.startswith(prefix)


def _and(left: Test, right: Test, record: Any) -> bool:
    return left(record) and right(record)


def _or(left: Test, right: Test, record: Any) -> bool:
    return left(record) or right(record)


def _all(operands: tuple[Run, ...], record: Any) -> bool:
    for operand in operands:  # noqa: SIM110 (all() with a generator takes twice as long)
        if not operand(record):
            return False
    return True


def _any(operands: tuple[Run, ...], record: Any) -> bool:
    for operand in operands:  # noqa: SIM110 (any() with a generator takes twice as long)
        if operand(record):
            return True
    return False


def _odd(operands: tuple[Run, ...], record: Any) -> bool:
    return sum(1 for operand in operands if operand(record)) % 2 == 1


def _like(matches: Matcher, operand: Run, negated: bool, record: Any) -> bool:  # noqa: FBT001 (bound by partial)
    return matches(operand(record)) is not negated


def _like_metered(matches: Matcher, pattern: Pattern, operand: Run, node: Like, frame: _Frame) -> bool:
    text = operand(frame)
    frame.charge(pattern.cost(text), node.position)
    return matches(text) is not node.negated


def _within(operand: Run, members: tuple[tuple[Run, int], ...], negated: bool, record: Any) -> bool:  # noqa: FBT001 (bound by partial)
    value = operand(record)
    for member, position in members:
        if cast_like(member(record), value, position) == value:
            return not negated
    return negated


def _within_known(operand: Run, usual: tuple[type, ...], known: Collection[Value], node: Within, record: Any) -> bool:
    value = operand(record)
    if type(value) in usual:
        return (value in known) is not node.negated
    for member in node.members:
        if isinstance(member, Constant) and cast_like(member.value, value, member.position) == value:
            return not node.negated
    return node.negated


def _call(function: Function, arguments: tuple[Run, ...], position: int, record: Any) -> Value:
    result: Value = function.apply(position, *[argument(record) for argument in arguments])
    return result


def _call_metered(function: Function, arguments: tuple[Run, ...], position: int, frame: _Frame) -> Value:
    values = [argument(frame) for argument in arguments]
    frame.charge(function.cost(*values), position)
    result: Value = function.apply(position, *values)
    return result

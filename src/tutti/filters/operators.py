"""What the operators do to two values: comparisons with their implicit casts, membership, arithmetic.

The specification casts to the kinds that an operator is defined on; where it defines none, because it knows neither
decimals nor timestamps, the rule is that nothing is lost: an integer beside a decimal is compared as it is, and a text
beside a timestamp is read as one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, DecimalException
from typing import Any, Final, TypeAlias

from tutti.filters.grammar import INTEGER_MAX, INTEGER_MIN
from tutti.filters.values import (
    ARITHMETIC,
    FaultKind,
    FaultRaised,
    Number,
    Value,
    to_boolean,
    to_decimal,
    to_integer,
    to_number,
    to_text,
    to_timestamp,
)

Compare: TypeAlias = Callable[[Any, Any], bool]

_NUMBERS: Final = frozenset({int, Decimal})
COMPARE: Final[dict[str, Compare]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def equal(left: Value, right: Value, position: int) -> bool:
    """`left = right`: the left operand is cast to the kind of the right one; but a timestamp on either side wins."""
    kind = type(right)
    if type(left) is kind:
        return left == right
    if kind is datetime or type(left) is datetime:
        return to_timestamp(left, position) == to_timestamp(right, position)
    if kind is str:
        return to_text(left, position) == right
    if kind is bool:
        return to_boolean(left, position) is right
    return (to_decimal if kind is Decimal else to_number)(left, position) == right


def ordered(compare: Compare, left: Value, right: Value, position: int) -> bool:
    """`<` and its like: on integers by the specification, on decimals and timestamps by us."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return compare(left, right)
    if type(left) is datetime or type(right) is datetime:
        return compare(to_timestamp(left, position), to_timestamp(right, position))
    cast = to_decimal if type(left) is Decimal or type(right) is Decimal else to_integer
    return compare(cast(left, position), cast(right, position))


def cast_like(value: Value, model: Value, position: int) -> Value:
    """A member of an IN list as its left operand wants it."""
    match model:
        case bool():
            return to_boolean(value, position)
        case str():
            return to_text(value, position)
        case int():
            return to_number(value, position)
        case Decimal():
            return to_decimal(value, position)
        case datetime():
            return to_timestamp(value, position)


def calculate(sign: str, left: Number, right: Number, position: int) -> Number:
    """Integers stay within 64 bits, and their division goes towards zero; anything else is a math error."""
    if (sign == "/" or sign == "%") and right == 0:  # noqa: PLR1714 (twice as fast as a set)
        raise FaultRaised(FaultKind.MATH, "division by zero", position, 0)
    if type(left) is int and type(right) is int:
        result = _calculate_integers(sign, left, right)
        if INTEGER_MIN <= result <= INTEGER_MAX:
            return result
        raise FaultRaised(FaultKind.MATH, f"the result of {sign} does not fit into 64 bits", position, 0)
    try:
        return _DECIMAL_OPERATIONS[sign](left, right)
    except DecimalException:
        raise FaultRaised(FaultKind.MATH, f"the result of {sign} is out of range", position, 0) from None


def _calculate_integers(sign: str, left: int, right: int) -> int:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    quotient = abs(left) // abs(right)
    quotient = quotient if (left < 0) == (right < 0) else -quotient
    return quotient if sign == "/" else left - right * quotient


_DECIMAL_OPERATIONS: Final[dict[str, Callable[[Number, Number], Decimal]]] = {
    "+": ARITHMETIC.add,
    "-": ARITHMETIC.subtract,
    "*": ARITHMETIC.multiply,
    "/": ARITHMETIC.divide,
    "%": ARITHMETIC.remainder,
}

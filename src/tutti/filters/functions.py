"""The built-in functions: those of the specification, and the casts to our own kinds.

A function is found by its name and its number of arguments. Arguments arrive already cast to the kinds it declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tutti.filters.grammar import INTEGER_MAX, INTEGER_MIN
from tutti.filters.values import (
    FaultKind,
    FaultRaised,
    Kind,
    Number,
    Value,
    to_boolean,
    to_decimal,
    to_integer,
    to_text,
    to_timestamp,
)

_INTEGER32_MIN: Final = -(2**31)

# Unicode's property White_Space; `str.strip()` would also take U+001C to U+001F, which are control characters.
_WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)


def _characters(*arguments: Value) -> int:
    return sum(len(argument) for argument in arguments if type(argument) is str)


class Function(msgspec.Struct, frozen=True):
    """`apply` takes the position for its errors, then the arguments; `cost` is how many characters it goes through."""

    name: str
    parameters: tuple[Kind, ...]
    returns: Kind
    apply: Callable[..., Any]
    variadic: Kind | None = None  # of arguments beyond the parameters
    cost: Callable[..., int] = _characters


def find_function(name: str, arity: int) -> Function | None:
    for function in BUILT_IN.get(name, ()):
        if arity == len(function.parameters) or (function.variadic is not None and arity > len(function.parameters)):
            return function
    return None


def _failed(what: str, position: int, value: Value) -> FaultRaised:
    return FaultRaised(FaultKind.FUNCTION_EVALUATION, what, position, value)


def _absolute(position: int, number: Number) -> Number:
    if number in (_INTEGER32_MIN, INTEGER_MIN) and isinstance(number, int):
        # The first is what the specification says; the second is the same for our 64 bits.
        largest = -number - 1
        raise FaultRaised(FaultKind.MATH, f"the absolute value of {number} is out of range", position, largest)
    return number.copy_abs() if not isinstance(number, int) else abs(number)


def _length(_position: int, text: str) -> int:
    return len(text)


def _concat(_position: int, *texts: str) -> str:
    return "".join(texts)


def _concat_with(_position: int, delimiter: str, *texts: str) -> str:
    return delimiter.join(texts)


def _concat_with_cost(delimiter: str, *texts: str) -> int:
    return len(delimiter) * len(texts) + sum(map(len, texts))


def _lower(_position: int, text: str) -> str:
    return text.lower()


def _upper(_position: int, text: str) -> str:
    return text.upper()


def _trim(_position: int, text: str) -> str:
    return text.strip(_WHITE_SPACE)


def _left(position: int, text: str, count: int) -> str:
    if count < 0:
        raise _failed(f"LEFT cannot take {count} characters", position, text)
    return text[:count]


def _right(position: int, text: str, count: int) -> str:
    if count < 0:
        raise _failed(f"RIGHT cannot take {count} characters", position, text)
    return text[max(0, len(text) - count) :]


def _substring(position: int, text: str, start: int, length: int = INTEGER_MAX) -> str:
    if length < 0:
        raise _failed(f"SUBSTRING cannot take {length} characters", position, "")
    if abs(start) > len(text):
        raise _failed(f"SUBSTRING cannot start at {start}: the text has {len(text)} characters", position, "")
    if start == 0:
        return ""
    first = start - 1 if start > 0 else len(text) + start
    return text[first : first + length]


def _identity_boolean(position: int, value: Value) -> bool:
    return to_boolean(value, position)


def _identity_integer(position: int, value: Value) -> int:
    return to_integer(value, position)


def _identity_text(position: int, value: Value) -> str:
    return to_text(value, position)


def _identity_decimal(position: int, value: Value) -> Number:
    return to_decimal(value, position)


def _identity_timestamp(position: int, value: Value) -> Value:
    return to_timestamp(value, position)


def _castable(cast: Callable[[Value, int], object]) -> Callable[[int, Value], bool]:
    def check(position: int, value: Value) -> bool:
        try:
            cast(value, position)
        except FaultRaised:
            return False
        return True

    return check


def _table(*functions: Function) -> dict[str, tuple[Function, ...]]:
    names = dict.fromkeys(function.name for function in functions)
    return {name: tuple(function for function in functions if function.name == name) for name in names}


_B, _I, _N, _S, _T, _ANY = Kind.BOOLEAN, Kind.INTEGER, Kind.NUMBER, Kind.STRING, Kind.TIMESTAMP, Kind.ANY

BUILT_IN: Final = _table(
    Function("ABS", (_N,), _N, _absolute),
    Function("LENGTH", (_S,), _I, _length),
    Function("CONCAT", (), _S, _concat, variadic=_S),
    Function("CONCAT_WS", (_S,), _S, _concat_with, variadic=_S, cost=_concat_with_cost),
    Function("LOWER", (_S,), _S, _lower),
    Function("UPPER", (_S,), _S, _upper),
    Function("TRIM", (_S,), _S, _trim),
    Function("LEFT", (_S, _I), _S, _left),
    Function("RIGHT", (_S, _I), _S, _right),
    Function("SUBSTRING", (_S, _I), _S, _substring),
    Function("SUBSTRING", (_S, _I, _I), _S, _substring),
    Function("INT", (_ANY,), _I, _identity_integer),
    Function("BOOL", (_ANY,), _B, _identity_boolean),
    Function("STRING", (_ANY,), _S, _identity_text),
    Function("IS_INT", (_ANY,), _B, _castable(to_integer)),
    Function("IS_BOOL", (_ANY,), _B, _castable(to_boolean)),
    # Ours
    Function("DECIMAL", (_ANY,), _N, _identity_decimal),
    Function("TIMESTAMP", (_ANY,), _T, _identity_timestamp),
)

"""The values that filters compute with, how fields become such values, and how one kind is cast to another.

CloudEvents SQL has three kinds (String, Integer, Boolean); decimals and timestamps are ours. A field of another type is
what the wire would show of it: enums are their value, floats the decimal that prints them, dates midnight in UTC, UUIDs
and the like their text. Lists and objects are no values: they exist, but to compute with one is a cast error.

A function here that cannot do its work raises `FaultRaised`; nothing else leaves it, whatever the value.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from enum import Enum
from typing import Final, TypeAlias, cast

import msgspec

from tutti.filters.grammar import INTEGER_MAX, INTEGER_MIN

Value: TypeAlias = bool | int | str | Decimal | datetime
Number: TypeAlias = int | Decimal


class Absence(Enum):
    """An attribute that the event does not have."""

    MISSING = "missing"


MISSING: Final = Absence.MISSING

# IEEE decimal128, so that no field, however written, makes arithmetic slow or depends on the process' own settings.
ARITHMETIC: Final = Context(prec=34, Emax=6144, Emin=-6143, traps=[InvalidOperation, DivisionByZero, Overflow])
_DIGITS_MAX: Final = 6144  # a longer number has no text: 1E+999999999 is nine bytes on the wire and a gigabyte in full
_INTEGER: Final = re.compile(r"[+-]?[0-9]+").fullmatch
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?").fullmatch


class FaultKind(Enum):
    """The kinds of error that the specification names (parse errors are raised when the filter is parsed)."""

    MATH = "math"
    CAST = "cast"
    MISSING_ATTRIBUTE = "missingAttribute"
    MISSING_FUNCTION = "missingFunction"
    FUNCTION_EVALUATION = "functionEvaluation"
    GENERIC = "generic"


class Kind(Enum):
    """What an operator or function takes or gives; the value is the specification's name, or ours."""

    BOOLEAN = "Boolean"
    INTEGER = "Integer"
    NUMBER = "Number"
    STRING = "String"
    TIMESTAMP = "Timestamp"
    ANY = "Any"


ZERO: Final[dict[Kind, Value]] = {
    Kind.BOOLEAN: False,
    Kind.INTEGER: 0,
    Kind.NUMBER: 0,
    Kind.STRING: "",
    Kind.TIMESTAMP: datetime(1970, 1, 1, tzinfo=UTC),
    Kind.ANY: False,  # "where the return type cannot be determined, a return type of Boolean"
}


class Fault(msgspec.Struct, frozen=True):
    """Why an evaluation has an error: its kind, a sentence, and the position in the filter's text."""

    kind: FaultKind
    what: str
    position: int


class FaultRaised(Exception):
    """Evaluation stops here (it never leaves the evaluator). `value` is what the node at fault gives."""

    def __init__(self, kind: FaultKind, what: str, position: int, value: Value = False) -> None:  # noqa: FBT002 (a value)
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.position = position
        self.value = value

    @property
    def fault(self) -> Fault:
        return Fault(self.kind, self.what, self.position)


def absent(raw: object) -> bool:
    """Null, and a field that was never set, are the same as no field: the wire may drop either."""
    return raw is None or raw is MISSING or raw is msgspec.UNSET


def value_of(raw: object, name: str, position: int) -> Value:
    """A field or attribute as a value; an absent one is a missing attribute, what is no value at all a cast error."""
    kind = type(raw)
    if kind is str or kind is int or kind is bool or (kind is Decimal and cast("Decimal", raw).is_finite()):
        return cast("Value", raw)
    if absent(raw):
        raise FaultRaised(FaultKind.MISSING_ATTRIBUTE, f"the event has no {name}", position)
    value = _converted(raw)
    if value is None:
        raise FaultRaised(FaultKind.CAST, f"{name} is a {kind.__name__}, which has no value to compute with", position)
    return value


def _converted(raw: object) -> Value | None:
    match raw:
        case Enum():
            return None if isinstance(raw.value, Enum) else _converted(raw.value)
        case bool():
            return raw
        case int():
            return int(raw)
        case str():
            return str(raw)
        case Decimal():
            return raw if raw.is_finite() else None
        case float():
            number = Decimal(repr(float(raw)))
            return number if number.is_finite() else None
        case datetime():
            return _instant(raw)
        case date():
            return datetime(raw.year, raw.month, raw.day, tzinfo=UTC)
        case _:
            return _wire_text(raw)


def _wire_text(raw: object) -> str | None:
    try:
        text = msgspec.to_builtins(raw)
    except (TypeError, ValueError, RecursionError):  # not a wire value, or a bottomless one
        return None
    return text if isinstance(text, str) else None


def _instant(moment: datetime) -> datetime | None:
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):  # within a day of the calendar's ends
        return None


def kind_name(value: Value) -> str:
    match value:
        case bool():
            return "Boolean"
        case int():
            return "Integer"
        case str():
            return "String"
        case Decimal():
            return "Decimal"
        case datetime():
            return "Timestamp"


def to_boolean(value: Value, position: int) -> bool:
    match value:
        case bool():
            return value
        case int() | Decimal():
            return value != 0
        case str() if len(value) in {4, 5} and value.lower() in {"true", "false"}:
            return value.lower() == "true"
    raise _uncastable(value, "Boolean", position, value=False)


def to_integer(value: Value, position: int) -> int:
    """A decimal loses its fraction, towards zero."""
    match value:
        case bool():
            return int(value)
        case int():
            return value
        case str() if _INTEGER(value):
            digits = value.lstrip("+-0")
            if len(digits) <= len(str(INTEGER_MAX)):
                number = int(f"{'-' if value[0] == '-' else ''}0{digits}")
                if INTEGER_MIN <= number <= INTEGER_MAX:
                    return number
        case Decimal() if INTEGER_MIN <= value <= INTEGER_MAX:
            return int(value)
    raise _uncastable(value, "Integer", position, value=0)


def to_number(value: Value, position: int) -> Number:
    """For operators that the specification defines on Integer only: decimals stay what they are, the rest is cast."""
    return value if type(value) is int or type(value) is Decimal else to_integer(value, position)


def to_decimal(value: Value, position: int) -> Number:
    """An Integer is a number that needs no cast to be compared with a decimal."""
    if type(value) is int or type(value) is Decimal:
        return value
    match value:
        case bool():
            return int(value)
        case int() | Decimal():
            return value
        case str() if len(value.lstrip("+-0")) <= _DIGITS_MAX and _DECIMAL(value):
            return Decimal(value)
    raise _uncastable(value, "Decimal", position, value=0)


def to_timestamp(value: Value, position: int) -> datetime:
    if type(value) is datetime:
        return value
    if type(value) is str and len(value) <= 64:  # the longest ISO 8601 form is half of it
        try:
            moment = _instant(datetime.fromisoformat(value))
        except ValueError:
            moment = None
        if moment is not None:
            return moment
    raise _uncastable(value, "Timestamp", position, value=ZERO[Kind.TIMESTAMP])


def to_text(value: Value, position: int) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() <= 1024:  # far beyond 64 bits, far below what is slow
            return str(value)
        case Decimal() if abs(value.adjusted()) <= _DIGITS_MAX:
            text = format(value, "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return text if value else "0"
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
    raise _uncastable(value, "String", position, value="")


def _uncastable(original: Value, target: str, position: int, *, value: Value) -> FaultRaised:
    shown = repr(original) if isinstance(original, str) and len(original) <= 40 else kind_name(original)
    return FaultRaised(FaultKind.CAST, f"{shown} cannot be cast to {target}", position, value)

from __future__ import annotations

import pytest

from tutti.filters.evaluate import compile_filter
from tutti.filters.functions import BUILT_IN, find_function
from tutti.filters.grammar import parse
from tutti.filters.resolvers import MappingResolver


def outcome(text: str) -> tuple[object, str | None]:
    made = compile_filter(parse(text), MappingResolver()).evaluate({})
    return made.value, made.error.kind.value if made.error else None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ABS(-10)", 10),
        ("ABS('-10')", 10),
        ("ABS(-1.5)", "1.5"),
        ("ABS(-2147483649)", 2147483649),
        ("LENGTH('abc')", 3),
        ("LENGTH('𝄞ä')", 2),
        ("LENGTH(TRUE)", 4),
        ("CONCAT()", ""),
        ("CONCAT('a', 1, FALSE)", "a1false"),
        ("CONCAT_WS(',')", ""),
        ("CONCAT_WS(',', 'a')", "a"),
        ("CONCAT_WS(', ', 'a', 'b', 'c')", "a, b, c"),
        ("LOWER('AbC')", "abc"),
        ("UPPER('aBc')", "ABC"),
        ("TRIM('  a b \t\n\u3000\u00a0')", "a b"),
        ("TRIM('\x1f a \x1c')", "\x1f a \x1c"),
        ("LEFT('abc', 2)", "ab"),
        ("LEFT('abc', 10)", "abc"),
        ("LEFT('', 0)", ""),
        ("RIGHT('abc', 2)", "bc"),
        ("RIGHT('abc', 0)", ""),
        ("RIGHT('abc', 10)", "abc"),
        ("SUBSTRING('abcdef', 1)", "abcdef"),
        ("SUBSTRING('Sakila', -3)", "ila"),
        ("SUBSTRING('abcdef', 0)", ""),
        ("SUBSTRING('abcdef', 6)", "f"),
        ("SUBSTRING('abcdef', -6)", "abcdef"),
        ("SUBSTRING('abcdef', 2, 4)", "bcde"),
        ("SUBSTRING('Sakila', -5, 3)", "aki"),
        ("SUBSTRING('abcdef', 5, 10)", "ef"),
        ("SUBSTRING('abcdef', 2, 0)", ""),
        ("INT('-1')", -1),
        ("INT(TRUE)", 1),
        ("INT(2.9)", 2),
        ("BOOL('TRUE')", True),
        ("BOOL(-50)", True),
        ("BOOL(0)", False),
        ("STRING(FALSE)", "false"),
        ("STRING(-1)", "-1"),
        ("STRING(1.50)", "1.5"),
        ("IS_INT('12')", True),
        ("IS_INT('1.2')", False),
        ("IS_BOOL('False')", True),
        ("IS_BOOL('no')", False),
        ("DECIMAL('1.5') + 1 = 2.5", True),
        ("STRING(TIMESTAMP('2024-01-01T01:00:00+01:00'))", "2024-01-01T00:00:00Z"),
        ("length('abc')", 3),
    ],
)
def test_values(text: str, value: object) -> None:
    made, error = outcome(text)
    assert (str(made) if isinstance(value, str) else made, error) == (value, None)
    assert isinstance(made, bool) == isinstance(value, bool)


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [
        ("ABS(-2147483648)", 2147483647, "math"),
        ("ABS(-9223372036854775808)", 2**63 - 1, "math"),
        ("LEFT('abc', -2)", "abc", "functionEvaluation"),
        ("RIGHT('abc', -2)", "abc", "functionEvaluation"),
        ("SUBSTRING('abcdef', 10)", "", "functionEvaluation"),
        ("SUBSTRING('abcdef', -10, 10)", "", "functionEvaluation"),
        ("SUBSTRING('abcdef', 1, -1)", "", "functionEvaluation"),
        ("SUBSTRING('', 1)", "", "functionEvaluation"),
        ("INT('ABC')", 0, "cast"),
        ("BOOL('ABC')", False, "cast"),
        ("LEFT('abc', 'x')", "", "cast"),
        ("CONCAT_WS()", False, "missingFunction"),
        ("ABS(1, 2)", False, "missingFunction"),
        ("NO_SUCH(1)", False, "missingFunction"),
        # Around an error, everything gives the zero value of its own kind.
        ("LENGTH(LEFT('abc', -2))", 0, "functionEvaluation"),
        ("LOWER(LEFT('ABC', -2))", "", "functionEvaluation"),
        ("LEFT('abc', -2) = 'abc'", False, "functionEvaluation"),
        ("ABS(-2147483648) + 1", 0, "math"),
    ],
)
def test_values_beside_errors(text: str, value: object, error: str) -> None:
    assert outcome(text) == (value, error)


def test_functions_are_found_by_name_and_number_of_arguments() -> None:
    assert find_function("SUBSTRING", 2) is not find_function("SUBSTRING", 3)
    assert find_function("SUBSTRING", 1) is None
    assert find_function("CONCAT", 500) is not None
    assert {"ABS", "LENGTH", "TRIM", "IS_BOOL"} <= BUILT_IN.keys()

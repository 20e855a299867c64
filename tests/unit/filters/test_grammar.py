from __future__ import annotations

import pytest

from tutti.errors import FilterError, FilterTooComplex
from tutti.filters.expression import Constant, Identifier, Logic, Within, render
from tutti.filters.grammar import parse
from tutti.limits import FILTER_MAX_CHARACTERS, FILTER_MAX_DEPTH, FILTER_MAX_NODES


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a OR b AND c", "((a OR b) AND c)"),  # equal rank, left to right
        ("a AND b OR c XOR d", "(((a AND b) OR c) XOR d)"),
        ("a AND b AND c", "(a AND b AND c)"),
        ("a AND (b AND c)", "(a AND (b AND c))"),
        ("NOT a = b", "((NOT a) = b)"),
        ("NOT a LIKE 'x'", "((NOT a) LIKE 'x')"),
        ("NOT NOT - a", "(NOT (NOT (- a)))"),
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b % c", "((a / b) % c)"),
        ("a + 1 < b * 2 AND c", "(((a + 1) < (b * 2)) AND c)"),
        ("a = b = c", "((a = b) = c)"),
        ("2 * a LIKE '4'", "(2 * (a LIKE '4'))"),
        ("a = b IN (1)", "(a = (b IN (1)))"),
        ("a LIKE 'x' IN (TRUE)", "((a LIKE 'x') IN (TRUE))"),
        ("a NOT IN (1,2) NOT LIKE 't%'", "((a NOT IN (1, 2)) NOT LIKE 't%')"),
        ("NOT EXISTS a AND EXISTS b", "((NOT (EXISTS a)) AND (EXISTS b))"),
        ("a<>1", "(a != 1)"),
        ("4-1", "(4 - 1)"),
        ("4 -1", "(4 - 1)"),
        ("4 - -1", "(4 - -1)"),
        ("4 + +1", "(4 + 1)"),
        ("--10", "(- -10)"),
        ("- 10", "(- 10)"),
        ("-a", "(- a)"),
        ("((a))", "a"),
        ("int ( a ) < 3 aNd tRuE", "((INT(a) < 3) AND TRUE)"),
        ("concat_ws(',')", "CONCAT_WS(',')"),
        ("a\t=\r\n1", "(a = 1)"),
    ],
)
def test_precedence(text: str, meaning: str) -> None:
    assert render(parse(text)) == meaning


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a\"b\\'c'", "a\"b'c"),
        ('"a\'b\\"c"', "a'b\"c"),
        ("'it''s'", "it's"),
        ("'ab\\c'", "ab\\c"),
        ("'a\\\\'", "a\\\\"),
        ("''", ""),
        ("'ä\n𝄞'", "ä\n𝄞"),
        ("2147483647", 2**31 - 1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0000000000000000000000000007", 7),
        ("TRUE", True),
        ("fAlSe", False),
    ],
)
def test_literals(text: str, value: object) -> None:
    parsed = parse(text)
    assert isinstance(parsed, Constant)
    assert parsed.value == value
    assert type(parsed.value) is type(value)


@pytest.mark.parametrize("name", ["a", "a1", "1a", "SOURCE", "order_id", "_x", "a.b.c", "ce.time", "true.x", "in.x"])
def test_identifiers(name: str) -> None:
    assert parse(name) == Identifier(0, name)


def test_nodes_know_where_they_stand() -> None:
    parsed = parse("  abc   NOT IN  (1,   LENGTH('x'))")
    assert isinstance(parsed, Within)
    assert (parsed.position, parsed.operand.position) == (8, 2)
    assert [member.position for member in parsed.members] == [17, 22]
    assert parse("a AND b").position == 2


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("", 0, "expected a value, not the end"),
        ("   ", 3, "expected a value, not the end"),
        ("ABC(", 4, "expected a value, not the end"),
        ("(a", 2, "not closed (opened at character 1)"),
        ("a b", 2, "expected an operator or the end, not 'b'"),
        ("a = ", 4, "expected a value"),
        ("a = = b", 4, "expected a value, not '='"),
        ("AND", 0, "expected a value, not 'AND'"),
        ("a )", 2, "expected an operator or the end"),
        ("a = 'b", 4, "has no end"),
        ("a = 'b\\'", 4, "has no end"),
        ("a = 'b''", 4, "has no end"),
        ("a ? b", 2, "unexpected character '?'"),
        ("a &&  b", 2, "unexpected character '&'"),
        ("ä = 1", 0, "unexpected character 'ä'"),
        ("a\u00a0= 1", 1, "unexpected character '\\xa0'"),
        ("a LIKE 123", 7, "LIKE needs a text in quotes"),
        ("a LIKE b", 7, "LIKE needs a text in quotes"),
        ("a NOT b", 6, "expected LIKE or IN after NOT"),
        ("a IN ()", 6, "expected a value"),
        ("a IN 1", 5, "IN needs a list in brackets"),
        ("a IN (1,)", 8, "expected a value"),
        ("a IN (1 2)", 8, "not closed (opened at character 6)"),
        ("EXISTS 'a'", 7, "needs the name"),
        ("EXISTS 1.5", 7, "needs the name"),
        ("EXISTS in", 7, "needs the name"),
        ("f1(2)", 0, "only letters and _"),
        ("a.b(2)", 0, "only letters and _"),
        ("+a", 0, "expected a value"),
        ("+ 1", 0, "expected a value"),
        ("a = 9223372036854775808", 4, "does not fit into 64 bits"),
        ("a = -9223372036854775809", 4, "does not fit into 64 bits"),
        ("a > 1.5e3", 4, "'1.5e3' is not a number"),
        ("a > 1.2.3", 4, "'1.2.3' is not a number"),
        ("a > .5", 4, "unexpected character '.'"),
        ("a > 5.", 5, "unexpected character '.'"),
        ("a =\n  ?", 6, "unexpected character '?'"),
    ],
)
def test_errors_point_at_the_character(text: str, position: int, what: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert not isinstance(caught.value, FilterTooComplex)
    assert caught.value.position == position
    assert what in caught.value.what


def test_the_message_shows_the_line_and_a_caret() -> None:
    with pytest.raises(FilterError) as caught:
        parse("a = 1 AND\nprice > > 2")
    assert "\n  price > > 2\n          ^" in caught.value.what


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a" * (FILTER_MAX_CHARACTERS + 1), FILTER_MAX_CHARACTERS),
        ("(" * FILTER_MAX_CHARACTERS, FILTER_MAX_DEPTH),
        ("NOT " * 150 + "a", 4 * FILTER_MAX_DEPTH),
        ("a AND b OR " * 60 + "c", None),
        ("-" * FILTER_MAX_CHARACTERS, None),
        ("1" + "+1" * 300, None),
        ("ABS(" * 200 + "1" + ")" * 200, 4 * FILTER_MAX_DEPTH),
        ("a IN (" + "1," * FILTER_MAX_NODES + "1)", None),
        ("1=(" * 500 + "1" + ")" * 500, None),
    ],
)
def test_limits(text: str, position: int | None) -> None:
    with pytest.raises(FilterTooComplex) as caught:
        parse(text)
    assert position is None or caught.value.position == position


def test_long_chains_of_one_connective_are_not_deep() -> None:
    parsed = parse(" OR ".join(f"a = {n}" for n in range(300)))
    assert isinstance(parsed, Logic)
    assert len(parsed.operands) == 300


def test_what_is_just_allowed() -> None:
    parse("a" * FILTER_MAX_CHARACTERS)
    parse("(" * (FILTER_MAX_DEPTH - 1) + "a" + ")" * (FILTER_MAX_DEPTH - 1))
    parse("a IN (" + ",".join(["1"] * (FILTER_MAX_NODES - 2)) + ")")

from __future__ import annotations

from decimal import Decimal

import pytest

from tutti.filters.expression import Constant, Identifier, Negate, Not, identifiers, quoted, render, walk
from tutti.filters.grammar import parse


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "1",
        "-1",
        "- a",
        "1.50",
        "-0.5",
        "TRUE",
        "'it''s'",
        '"a\\\'b"',
        "'a\\\\'",
        "'\"'",
        "''",
        "a AND b AND NOT c",
        "a XOR (b OR c)",
        "a + b * c - 2 >= 3",
        "a LIKE 'x\\%%' AND b NOT LIKE '_'",
        "a IN (1, 'x', b) OR c NOT IN (TRUE)",
        "EXISTS a.b",
        "CONCAT() = CONCAT_WS(',', 'a', b)",
    ],
)
def test_what_is_rendered_parses_to_the_same(text: str) -> None:
    once = render(parse(text))
    assert render(parse(once)) == once


def test_render_writes_out_every_bracket() -> None:
    assert render(parse("a or b and c <> 1")) == "((a OR b) AND (c != 1))"


def test_equal_expressions_render_equally_wherever_they_stood() -> None:
    assert parse("a = 1") != parse("  a   = 1")
    assert render(parse("a = 1")) == render(parse("  (a)   = (1)"))


def test_kinds_of_literals_stay_apart() -> None:
    texts = [render(Constant(0, value)) for value in (True, 1, "1", Decimal(1), Decimal("1.0"))]
    assert texts == ["TRUE", "1", "'1'", "1.0", "1.0"]


def test_quotes_are_chosen_so_that_no_backslash_escapes_them() -> None:
    assert quoted("a'b") == "'a''b'"
    assert quoted("a\\'b") == '"a\\\'b"'


def test_identifiers_include_those_that_are_only_asked_for() -> None:
    assert identifiers(parse("a.b = 1 OR EXISTS c AND LENGTH(d) IN (e, 2)")) == {"a.b", "c", "d", "e"}


def test_walk_gives_depths_without_recursion() -> None:
    node: Not | Negate | Identifier = Identifier(0, "a")
    for _ in range(5_000):
        node = Not(0, node)
    assert max(depth for _, depth in walk(node)) == 5_001

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tutti.filters.conditions import ALWAYS, NEVER, Absent, Begins, Between, Equals, Present, Ways, ways
from tutti.filters.grammar import parse
from tutti.limits import FILTER_DISJUNCTS_MAX_COUNT

NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUE", ALWAYS),
        ("FALSE", NEVER),
        ("1 = 1", ALWAYS),
        ("1 = 2 OR 'x'", NEVER),
        ("1 / 0 = 1", NEVER),
        ("a", ((Equals("a", (True,)),),)),
        ("NOT a", ((Equals("a", (False,)),),)),
        ("a = 'x'", ((Equals("a", ("x",)),),)),
        ("'x' = a", ((Equals("a", ("x",), values_cast=True),),)),
        ("a IN ('x', 1)", ((Equals("a", ("x", 1), values_cast=True),),)),
        ("a IN ('x', b)", ((Present("a"),),)),
        ("a IN (INT('x'))", NEVER),
        ("a = -(1 + 1)", ((Equals("a", (-2,)),),)),
        ("a != 'x'", ((Present("a"),),)),
        ("a != TRUE", ((Equals("a", (False,)),),)),
        ("NOT (a != 'x')", ((Equals("a", ("x",)),),)),
        ("a > 5", ((Between("a", 5, None),),)),
        ("NOT (a > 5)", ((Between("a", None, 5),),)),
        ("5 > a", ((Between("a", None, 5),),)),
        ("a > 5 AND a <= 7.5", ((Between("a", 5, Decimal("7.5")),),)),
        ("a > 7 AND a < 5", NEVER),
        ("a >= TIMESTAMP('2024-01-01')", ((Between("a", NEW_YEAR, None),),)),
        ("a >= '2024-01-01'", ((Between("a", NEW_YEAR, None),),)),
        ("a >= '20240101'", ((Present("a"),),)),  # a number to a number, a day to a timestamp
        ("a > 5 AND a > '2024-01-01'", ((Between("a", 5, None), Between("a", NEW_YEAR, None)),)),
        ("a LIKE 'ab%c'", ((Begins("a", "ab"),),)),
        ("a LIKE 'ab'", ((Begins("a", "ab", whole=True),),)),
        ("a LIKE '%b'", ((Present("a"),),)),
        ("a NOT LIKE 'ab%'", ((Present("a"),),)),
        ("EXISTS a", ((Present("a"),),)),
        ("NOT EXISTS a", ((Absent("a"),),)),
        ("a = 1 AND EXISTS a AND b = 2", ((Equals("a", (1,)), Equals("b", (2,))),)),
        ("a = 1 OR a = 2", ((Equals("a", (1, 2)),),)),
        ("a = 1 OR a = TRUE", ((Equals("a", (1, True)),),)),
        ("a = 1 OR b = 2", ((Equals("a", (1,)),), (Equals("b", (2,)),))),
        ("NOT (a = 1 OR b > 2)", ((Between("b", None, 2), Present("a")),)),
        ("a = 1 OR TRUE", ALWAYS),
        ("a = 1 OR LENGTH('x') = 1", ALWAYS),
        ("a + b > 5", ((Present("a"), Present("b")),)),
        ("LENGTH(a) > 5", ((Present("a"),),)),
        ("(a OR b) = TRUE", ((Present("a"),),)),
        ("a = b", ((Present("a"), Present("b")),)),
        (
            "a = 1 XOR b > 2",
            ((Between("b", None, 2), Equals("a", (1,))), (Between("b", 2, None), Present("a"))),
        ),
        ("a XOR b XOR c", ((Present("a"), Present("b"), Present("c")),)),
    ],
)
def test_ways(text: str, expected: Ways) -> None:
    assert ways(parse(text)) == expected


def test_a_truth_value_and_a_number_are_not_the_same_though_python_says_so() -> None:
    (first, second) = ways(parse("(a = TRUE AND b = 2) OR (a = 1 AND b = 2)"))
    assert first == second
    assert [type(way[0].values[0]) for way in (first, second) if isinstance(way[0], Equals)] == [bool, int]


def test_products_stay_small() -> None:
    side = " OR ".join(f"(a{n} = {n} AND c > 1)" for n in range(20))
    found = ways(parse(f"({side}) AND ({side.replace('a', 'b')})"))
    assert len(found) == 20  # one side alone is a condition too


def test_too_many_ways_are_none_that_could_be_looked_up() -> None:
    text = " OR ".join(f"a{n} = 1" for n in range(FILTER_DISJUNCTS_MAX_COUNT + 1))
    assert ways(parse(text)) == ALWAYS


def test_many_values_of_one_field_are_one_way() -> None:
    found = ways(parse(" OR ".join(f"a = {n}" for n in range(200))))
    assert found == ((Equals("a", tuple(range(200))),),)

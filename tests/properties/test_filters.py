"""What holds for every filter, however it is written: the index and the push-down never differ from evaluation, and a
text ends in a result or in an error within its limits."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tutti.errors import FilterError, FilterTooComplex
from tutti.filters import (
    EventResolver,
    Expression,
    Index,
    MappingResolver,
    RoutingAttribute,
    compile_filter,
    parse,
    subject_tokens,
)
from tutti.filters.expression import render, walk
from tutti.filters.like import matcher_of, pattern_of
from tutti.limits import FILTER_MAX_DEPTH, FILTER_MAX_NODES, FILTER_SUBJECTS_MAX_COUNT
from tutti.model.subjects import token


class Side(Enum):
    BUY = "buy"
    SELL = 5


NAMES = ["a", "b", "c.d"]
# Few values, written in many ways: so that casts, ties and coincidences happen.
LITERALS = [
    "'5'", "'05'", "'+5'", "'5.0'", "5", "-1", "0", "1", "TRUE", "FALSE", "'true'", "'TRUE'", "5.0", "1.5", "0.1",
    "'0.1'", "'buy'", "''", "'2024-01-01'", "'20240101'", "TIMESTAMP('2024-01-01')", "'2024-01-01T01:00:00+01:00'",
    "'abc'", "9223372036854775807", "INT('x')", "(2 + 3)", "NULLIF()",
]  # fmt: skip
VALUES: list[Any] = [
    "5", "05", "+5", "5.0", "true", "TRUE", "2024-01-01", "20240101", "abc", "abcd", "", "buy", 5, 1, 0, -1, 2**63 - 1,
    10**30, True, False, Decimal("5.0"), Decimal("1.5"), Decimal("NaN"), Decimal("1E+400"), 5.0, 1.5, 0.1, float("nan"),
    float("inf"), None, msgspec.UNSET, [5], {"d": 5}, Side.BUY, Side.SELL, datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1), date(2024, 1, 1), b"abc",  # noqa: DTZ001 (naive means UTC)
]  # fmt: skip

names = st.sampled_from(NAMES)
literals = st.sampled_from(LITERALS)
comparators = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])
patterns = st.sampled_from(["5%", "%5", "true", "2024%", "a_c", "ab%d", "%", "", "%b%", "buy", "5"])
not_or_nothing = st.sampled_from(["", "NOT "])

atoms = st.one_of(
    st.builds("{} {} {}".format, names, comparators, literals),
    st.builds("{} {} {}".format, literals, comparators, names),
    st.builds("{} {} {}".format, names, comparators, names),
    st.builds("{} > {} AND {} <= {}".format, names, literals, names, literals).map("({})".format),
    st.builds(
        lambda name, no, members: f"{name} {no}IN ({', '.join(members)})",
        names,
        not_or_nothing,
        st.lists(st.one_of(literals, names), min_size=1, max_size=4),
    ),
    st.builds("{} {}LIKE '{}'".format, names, not_or_nothing, patterns),
    st.builds("EXISTS {}".format, names),
    st.builds("LENGTH({}) {} {} * 2".format, names, comparators, names),
    names,
    literals,
)
texts = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner),
        st.builds(
            lambda connective, parts: "(" + f" {connective} ".join(parts) + ")",
            st.sampled_from(["AND", "OR", "XOR"]),
            st.lists(inner, min_size=2, max_size=3),
        ),
    ),
    max_leaves=6,
)


def nested(values: dict[str, Any]) -> dict[str, Any]:
    return {"c" if name == "c.d" else name: {"d": value} if name == "c.d" else value for name, value in values.items()}


records = st.dictionaries(names, st.sampled_from(VALUES), max_size=3).map(nested)


def simple_filters(name: str, values: list[str]) -> list[str]:
    """Every comparison of a field with a literal."""
    found = [f"EXISTS {name}", name]
    for value in values:
        found += [f"{name} {comparator} {value}" for comparator in ("=", "!=", "<", "<=", ">", ">=")]
        found += [f"{value} {comparator} {name}" for comparator in ("=", "!=", "<", "<=", ">", ">=")]
        found += [f"{name} IN ({value})", f"{name} IN ('abc', {value})", f"{name} NOT IN ({value})"]
    return found + [f"NOT ({text})" for text in found]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_simple_filter_alone_in_an_index_gives_what_evaluation_gives(value: object) -> None:
    for text in simple_filters("a", LITERALS):
        index: Index[int] = Index(MappingResolver())
        index.add(1, parse(text))
        passes = compile_filter(parse(text), MappingResolver()).matches({"a": value})
        assert index.match({"a": value}) == ({1} if passes else set()), text


@settings(max_examples=300)
@given(st.lists(texts, min_size=1, max_size=12), st.lists(records, min_size=1, max_size=8), st.data())
def test_the_index_gives_what_evaluation_gives(
    filters: list[str], events: list[dict[str, Any]], data: st.DataObject
) -> None:
    index: Index[int] = Index(MappingResolver())
    evaluators = {key: compile_filter(parse(text), MappingResolver()) for key, text in enumerate(filters)}
    for key, text in enumerate(filters):
        index.add(key, parse(text))
    for key in data.draw(st.sets(st.sampled_from(range(len(filters))))):
        index.discard(key)
        del evaluators[key]
    for event in events:
        assert index.match(event) == {key for key, evaluator in evaluators.items() if evaluator.matches(event)}


@settings(max_examples=200)
@given(texts, records)
def test_passing_is_a_true_value_without_an_error(text: str, event: dict[str, Any]) -> None:
    evaluator = compile_filter(parse(text), MappingResolver())
    outcome = evaluator.evaluate(event)
    assert evaluator.matches(event) == (outcome.value is True and outcome.error is None)
    assert outcome == evaluator.evaluate(event)


@settings(max_examples=200)
@given(texts)
def test_what_is_rendered_means_the_same(text: str) -> None:
    rendered = render(parse(text))
    assert render(parse(rendered)) == rendered


class Routed(msgspec.Struct):
    text: str | None
    number: int
    price: Decimal
    rate: float
    active: bool
    at: datetime
    day: date
    side: Side


class Seen(msgspec.Struct):
    event: Routed
    attributes: dict[str, str]


ATTRIBUTES = (
    RoutingAttribute("text", "string", optional=True),
    RoutingAttribute("number", "integer"),
    RoutingAttribute("price", "decimal"),
    RoutingAttribute("rate", "float"),
    RoutingAttribute("active", "boolean"),
    RoutingAttribute("at", "datetime"),
    RoutingAttribute("day", "date"),
)
MOMENTS = [
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(2024, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
]
routed = st.builds(
    Routed,
    text=st.sampled_from(["5", "05", "true", "", "a.b", "*", ">", "ä", "x" * 100, "2024-01-01", None]),
    number=st.sampled_from([5, 1, 0, -1, 2**62]),
    price=st.sampled_from([Decimal(text) for text in ("5", "5.00", "1.5", "-0.0", "0E+3", "1E+3", "0.10")]),
    rate=st.sampled_from([5.0, 1.5, 0.1, -0.0, 1e22, 1e-7]),
    active=st.booleans(),
    at=st.sampled_from(MOMENTS),
    day=st.sampled_from([date(2024, 1, 1), date(2024, 1, 2)]),
    side=st.sampled_from(Side),
)
ROUTED_VALUES: list[tuple[RoutingAttribute, list[Any]]] = [
    (ATTRIBUTES[0], ["5", "05", "true", "", "a.b", "*", ">", "ä", "x" * 100, "2024-01-01", None, Side.BUY]),
    (ATTRIBUTES[1], [5, 1, 0, -1, 2**62, Side.SELL]),
    (ATTRIBUTES[2], [Decimal(text) for text in ("5", "5.00", "1.5", "-0.0", "0E+3", "1E+3", "0.10", "1E+22", "1E-7")]),
    (ATTRIBUTES[3], [5.0, 1.5, 0.1, -0.0, 1e22, 1e-7]),
    (ATTRIBUTES[4], [True, False]),
    (ATTRIBUTES[5], MOMENTS),
    (ATTRIBUTES[6], [date(2024, 1, 1), date(2024, 1, 2)]),
    (RoutingAttribute("key", "uuid"), [UUID(int=1), UUID(int=2)]),
]
ROUTED_LITERALS = (
    ["5", "5.0", "5.00", "1.5", "0.1", "0", "-0.0", "1000", "10000000000000000000000.0", "0.0000001", "TRUE", "FALSE",
     "'5'", "'05'", "'true'", "''", "'a.b'", "'*'", "'>'", "'ä'", f"'{'x' * 100}'", "'2024-01-01'",
     "'2024-01-01T00:00:00Z'", "'2024-01-01T12:00:00.000005Z'", "TIMESTAMP('2024-01-01')", "1", "-1",
     "'00000000-0000-0000-0000-000000000001'"]
)  # fmt: skip
routed_literals = st.sampled_from(ROUTED_LITERALS)
routed_names = st.sampled_from([attribute.name for attribute in ATTRIBUTES])
routed_atoms = st.one_of(
    st.builds("{} = {}".format, routed_names, routed_literals),
    st.builds("{} = {}".format, routed_literals, routed_names),
    st.builds("{} {} {}".format, routed_names, comparators, routed_literals),
    st.builds(
        lambda name, members: f"{name} IN ({', '.join(members)})",
        routed_names,
        st.lists(routed_literals, min_size=1, max_size=4),
    ),
    st.builds("text LIKE {}".format, st.sampled_from(["'5'", "'a.b'", "'%'", "''", "'x%'"])),
    st.builds("EXISTS {}".format, routed_names),
    st.sampled_from(["active", "NOT active", "side = 'buy'", "ce.text = '5'"]),
)
routed_texts = st.recursive(
    routed_atoms,
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner),
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("({} XOR {})".format, inner, inner),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(("attribute", "values"), ROUTED_VALUES, ids=[each[0].name for each in ROUTED_VALUES])
def test_push_down_of_every_simple_filter_drops_no_match(attribute: RoutingAttribute, values: list[Any]) -> None:
    narrowed = 0
    for text in simple_filters(attribute.name, ROUTED_LITERALS):
        subjects = subject_tokens(parse(text), [attribute])
        narrowed += ("*",) not in subjects
        evaluator = compile_filter(parse(text), MappingResolver())
        for value in values:
            if evaluator.matches({attribute.name: value}):
                assert any(fits((token(value),), wanted) for wanted in subjects), (text, value)
    assert narrowed, "nothing was pushed down, so nothing was tested"


def fits(tokens: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return all(want in {"*", have} for have, want in zip(tokens, wanted, strict=True))


@settings(max_examples=400)
@given(routed_texts, st.lists(routed, min_size=1, max_size=20), st.sets(st.sampled_from(ATTRIBUTES)))
def test_push_down_never_drops_a_match(text: str, events: list[Routed], chosen: set[RoutingAttribute]) -> None:
    attributes = [attribute for attribute in ATTRIBUTES if attribute in chosen]
    expression = parse(text)
    subjects = subject_tokens(expression, attributes)
    evaluator = compile_filter(expression, EventResolver(Routed))
    for event in events:
        tokens = tuple(token(getattr(event, attribute.name)) for attribute in attributes)
        fitting = sum(fits(tokens, wanted) for wanted in subjects)
        assert fitting <= 1, "an event on two subjects would be refused by the server, or sent twice"
        if evaluator.matches(Seen(event, {"text": "5"})):
            assert fitting == 1


@settings(max_examples=100)
@given(st.lists(routed_texts, min_size=1, max_size=8), st.sampled_from(["AND", "OR"]))
def test_subjects_are_few_and_do_not_overlap(parts: list[str], connective: str) -> None:
    subjects = subject_tokens(parse(f" {connective} ".join(f"({part})" for part in parts)), ATTRIBUTES[:3])
    assert len(subjects) <= FILTER_SUBJECTS_MAX_COUNT
    for place, one in enumerate(subjects):
        for other in subjects[place + 1 :]:
            assert any(a != b and "*" not in {a, b} for a, b in zip(one, other, strict=True))


HOSTILE_EVENT: dict[str, Any] = {"a": "a" * 100_000, "b": 10**300, "c": {"d": Decimal("1E+999999")}, "e": [[]] * 10}

fragments = st.sampled_from(
    ["(", ")", ",", "'", '"', "\\", "%", "_", "a", "b", "c.d", "e", "1", "0.5", "-", "+", "*", "/", "=", "<", "<>", "!",
     " ", "NOT ", " AND ", " OR ", " XOR ", " LIKE ", " IN ", "EXISTS ", "TRUE", "CONCAT(", "LENGTH(", "UPPER(",
     "'%a%a'", "\x00", "\n", "é", "\ud800", "..", "9" * 30, "TIMESTAMP("]
)  # fmt: skip
hostile = st.one_of(
    st.text(max_size=60),
    st.lists(fragments, max_size=40).map("".join),
    st.builds(
        lambda opening, times, inner, closing: opening * times + inner + closing * times,
        st.sampled_from(
            [
                "(",
                "NOT ",
                "NOT(",
                "-",
                "- -",
                "ABS(",
                "CONCAT(a,",
                "UPPER(a) = (",
                "1+(",
                "a IN (",
                "a AND (",
                "a LIKE '%",
            ]
        ),
        st.integers(0, 2_000),
        st.sampled_from(["a", "1", "", "b", "'x'"]),
        st.sampled_from([")", "", "))", "%'"]),
    ),
    st.builds(
        lambda part, times, end: f"a LIKE '{part * times}{end}'",
        st.sampled_from(["%a", "%_", "_%", "a%", "%a_", "\\%", "%%"]),
        st.integers(0, 2_500),
        st.sampled_from(["", "b", "%b", "%b%"]),
    ),
    st.builds(
        lambda part, times: part.join(["a"] * times),
        st.sampled_from([" AND ", " OR ", "+", "=", " XOR ", ","]),
        st.integers(1, 1_500),
    ),
    st.integers(1, 3_000).map(lambda times: "a IN (" + ",".join(["1"] * times) + ")"),
)


@settings(max_examples=300)
@given(hostile)
def test_every_text_ends_in_a_result_or_an_error(text: str) -> None:
    start = time.process_time()
    expression = parsed_or_refused(text)
    if expression is not None:
        nodes = list(walk(expression))
        assert len(nodes) <= FILTER_MAX_NODES
        assert max(depth for _, depth in nodes) <= FILTER_MAX_DEPTH
        evaluator = compile_filter(expression, MappingResolver())
        evaluator.evaluate(HOSTILE_EVENT)
        index: Index[int] = Index(MappingResolver())
        index.add(1, expression)
        assert (index.match(HOSTILE_EVENT) == {1}) == evaluator.matches(HOSTILE_EVENT)
        subject_tokens(expression, ATTRIBUTES[:2])
    assert time.process_time() - start < 5.0


def parsed_or_refused(text: str) -> Expression | None:
    try:
        return parse(text)
    except FilterError as error:
        refusal = error
    assert 0 <= refusal.position <= len(text)
    assert str(refusal)
    return None


@given(texts, st.integers(0, 200), st.sampled_from("?&$;@#^~|"))
def test_a_wrong_character_is_pointed_at(text: str, place: int, wrong: str) -> None:
    place %= len(text) + 1
    assume(text[:place].count("'") % 2 == 0)  # inside quotes anything goes
    assume(not text[:place].endswith("."))  # a dot with nothing behind it is wrong itself
    with pytest.raises(FilterError) as caught:
        parse(text[:place] + wrong + text[place:])
    assert not isinstance(caught.value, FilterTooComplex)
    assert caught.value.position == place


def naive_like(pattern: str, text: str) -> bool:
    """The definition, character by character, with every choice tried."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(naive_like(pattern[1:], text[skipped:]) for skipped in range(len(text) + 1))
    if pattern[:2] in {"\\%", "\\_"}:
        return text[:1] == pattern[1] and naive_like(pattern[2:], text[1:])
    return bool(text) and pattern[0] in {"_", text[0]} and naive_like(pattern[1:], text[1:])


@settings(max_examples=400)
@given(st.text("ab%_\\", max_size=7), st.text("ab%_\\", max_size=9))
def test_like_is_what_it_is_defined_to_be(pattern: str, text: str) -> None:
    assert matcher_of(pattern_of(pattern))(text) == naive_like(pattern, text)

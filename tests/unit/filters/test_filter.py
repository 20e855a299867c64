from __future__ import annotations

import pytest

from tutti.errors import FilterError
from tutti.filters import Filter


def test_a_filter_keeps_its_text() -> None:
    wanted = Filter.parse("symbol  = 'IBM'")
    assert str(wanted) == wanted.text == "symbol  = 'IBM'"


@pytest.mark.parametrize(
    ("text", "position", "what", "hint"),
    [
        ("a = 1 AND LENGHT(b) > 1", 10, "there is no function LENGHT", "LENGTH"),
        ("CONCAT_WS()", 0, "CONCAT_WS does not take 0 arguments", "it takes 1 or more"),
        ("NOT SUBSTRING('a')", 4, "SUBSTRING does not take 1 arguments", "it takes 2 or 3"),
        ("a =", 3, "expected a value", ""),
    ],
)
def test_mistakes_are_found_when_it_is_declared(text: str, position: int, what: str, hint: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter.parse(text)
    assert caught.value.position == position
    assert what in caught.value.what
    assert hint in caught.value.hint

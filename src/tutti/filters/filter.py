"""A filter as users write it: the text, checked, with what it says."""

from __future__ import annotations

import msgspec

from tutti.errors import FilterError
from tutti.filters.expression import Call, Expression, walk
from tutti.filters.functions import BUILT_IN, find_function
from tutti.filters.grammar import parse


class Filter(msgspec.Struct, frozen=True):
    text: str
    expression: Expression

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Raises FilterError, which points at the character; also for a function that does not exist, which the
        specification would let pass until the first event."""
        expression = parse(text)
        for node, _ in walk(expression):
            if isinstance(node, Call) and find_function(node.function, len(node.arguments)) is None:
                raise _unknown_function(text, node)
        return cls(text, expression)

    def __str__(self) -> str:
        return self.text


def _unknown_function(text: str, call: Call) -> FilterError:
    known = BUILT_IN.get(call.function)
    if known is None:
        what, hint = f"there is no function {call.function}", f"known are {', '.join(BUILT_IN)}"
    else:
        what = f"{call.function} does not take {len(call.arguments)} arguments"
        counts = [f"{len(function.parameters)}{' or more' if function.variadic else ''}" for function in known]
        hint = f"it takes {' or '.join(counts)}"
    return FilterError(what, text=text, position=call.position, hint=hint)

"""What a filter says, as a value: the nodes of a parsed expression.

The union `Expression` is closed: whoever walks it ends in `assert_never`. Each node knows its position in the text, so
that an error found later, while an event is evaluated, still points at the character. For an operator it is the
operator's own position, for anything else the first character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal, TypeAlias, assert_never

import msgspec

Comparator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Calculation: TypeAlias = Literal["+", "-", "*", "/", "%"]
Connective: TypeAlias = Literal["AND", "OR", "XOR"]


class Node(msgspec.Struct, frozen=True, gc=False):
    """Any part of an expression; frozen and without cycles, so the collector need not look at it."""

    position: int


class Constant(Node, frozen=True, gc=False):
    value: bool | int | str | Decimal


class Identifier(Node, frozen=True, gc=False):
    name: str


class Exists(Node, frozen=True, gc=False):
    name: str


class Not(Node, frozen=True, gc=False):
    operand: Expression


class Negate(Node, frozen=True, gc=False):
    operand: Expression


class Arithmetic(Node, frozen=True, gc=False):
    operator: Calculation
    left: Expression
    right: Expression


class Comparison(Node, frozen=True, gc=False):
    """`<>` is written `!=` here: they are one operator."""

    operator: Comparator
    left: Expression
    right: Expression


class Logic(Node, frozen=True, gc=False):
    """Two or more operands under one connective, evaluated from left to right."""

    operator: Connective
    operands: tuple[Expression, ...]


class Like(Node, frozen=True, gc=False):
    operand: Expression
    pattern: str
    negated: bool = False


class Within(Node, frozen=True, gc=False):
    """`operand IN (members)`."""

    operand: Expression
    members: tuple[Expression, ...]
    negated: bool = False


class Call(Node, frozen=True, gc=False):
    """A function by its name in capitals; whether there is one of that name and arity is decided by who evaluates."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = (
    Constant | Identifier | Exists | Not | Negate | Arithmetic | Comparison | Logic | Like | Within | Call
)


def children(node: Expression) -> tuple[Expression, ...]:
    match node:
        case Constant() | Identifier() | Exists():
            return ()
        case Not() | Negate() | Like():
            return (node.operand,)
        case Arithmetic() | Comparison():
            return (node.left, node.right)
        case Logic():
            return node.operands
        case Within():
            return (node.operand, *node.members)
        case Call():
            return node.arguments
        case _:
            assert_never(node)


def walk(expression: Expression) -> Iterator[tuple[Expression, int]]:
    """Every node with its depth, the root's being 1. It does not recurse, so it may be used on any depth."""
    waiting = [(expression, 1)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting.extend((child, depth + 1) for child in children(node))


def identifiers(expression: Expression) -> frozenset[str]:
    """The names that an expression can read, those it only asks for by EXISTS included."""
    return frozenset(node.name for node, _ in walk(expression) if isinstance(node, Identifier | Exists))


def render(node: Expression) -> str:
    """The text of an expression with every bracket written out: equal texts, equal expressions, wherever they stood."""
    match node:
        case Constant():
            return literal(node.value)
        case Identifier():
            return node.name
        case Exists():
            return f"(EXISTS {node.name})"
        case Not():
            return f"(NOT {render(node.operand)})"
        case Negate():
            return f"(- {render(node.operand)})"
        case Arithmetic() | Comparison():
            return f"({render(node.left)} {node.operator} {render(node.right)})"
        case Logic():
            return "(" + f" {node.operator} ".join(render(operand) for operand in node.operands) + ")"
        case Like():
            return f"({render(node.operand)} {'NOT ' if node.negated else ''}LIKE {literal(node.pattern)})"
        case Within():
            members = ", ".join(render(member) for member in node.members)
            return f"({render(node.operand)} {'NOT ' if node.negated else ''}IN ({members}))"
        case Call():
            return f"{node.function}({', '.join(render(argument) for argument in node.arguments)})"
        case _:
            assert_never(node)


def literal(value: bool | int | str | Decimal) -> str:  # noqa: FBT001 (one of the four kinds a literal can have)
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return quoted(value)
        case Decimal():
            text = format(value, "f")
            return text if "." in text else text + ".0"
        case _:
            assert_never(value)


def quoted(text: str) -> str:
    """A literal for a text that came from one. A backslash keeps the character after it from closing the quotes, so the
    quote to use is the one that no backslash stands before."""
    pieces = re.findall(r"\\.|.", text, re.DOTALL)
    quote = '"' if "\\'" in pieces else "'"
    return quote + "".join(quote + quote if piece == quote else piece for piece in pieces) + quote

"""From the text of a filter to its expression: CloudEvents SQL 1.0, and what we add to it.

Loosest first; operators of one row have equal rank and are taken from left to right, as the specification says:

    AND OR XOR            left to right among each other: `a OR b AND c` is `(a OR b) AND c`
    = != <> < <= > >=
    + -
    * / %
    LIKE IN (and NOT LIKE, NOT IN)
    NOT, unary -          tightest: `NOT a = b` is `(NOT a) = b`

Added, where the specification has an error: `_` and dots in identifiers, integers of 64 bits, decimal literals such as
`128.50`, and a doubled quote inside quotes. Both the text and what becomes of it are limited (limits.py), and the
parser's own recursion is bounded by FILTER_MAX_DEPTH, so a hostile text ends in FilterTooComplex.
"""

from __future__ import annotations

import re
from decimal import Decimal
from sys import intern
from typing import Final, NoReturn

import msgspec

from tutti.errors import FilterError, FilterTooComplex
from tutti.filters.expression import (
    Arithmetic,
    Call,
    Comparison,
    Constant,
    Exists,
    Expression,
    Identifier,
    Like,
    Logic,
    Negate,
    Not,
    Within,
    walk,
)
from tutti.limits import FILTER_MAX_CHARACTERS, FILTER_MAX_DEPTH, FILTER_MAX_NODES

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<word>[A-Za-z0-9_]++(?:\.[A-Za-z0-9_]++)*+)
      | (?P<text>'(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+")
      | (?P<sign><>|!=|<=|>=|[=<>+\-*/%(),])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS: Final = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "IN", "EXISTS", "TRUE", "FALSE"})
_RANK: Final = {
    **dict.fromkeys(("AND", "OR", "XOR"), 1),
    **dict.fromkeys(("=", "!=", "<>", "<", "<=", ">", ">="), 2),
    **dict.fromkeys(("+", "-"), 3),
    **dict.fromkeys(("*", "/", "%"), 4),
}
_LOGIC, _COMPARISON = 1, 2
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z][A-Za-z_]*").fullmatch


class Token(msgspec.Struct, frozen=True, gc=False):
    """`sign` is the operator, bracket or keyword in capitals, or empty for words, numbers and texts."""

    kind: str  # word, number, text, sign or end
    text: str
    sign: str
    position: int


def parse(text: str) -> Expression:
    """The expression of a filter. Raises FilterError, which points at the character, or FilterTooComplex."""
    if len(text) > FILTER_MAX_CHARACTERS:
        raise FilterTooComplex(
            f"the filter has {len(text)} characters, more than {FILTER_MAX_CHARACTERS}",
            text=text[: FILTER_MAX_CHARACTERS + 1],
            position=FILTER_MAX_CHARACTERS,
            hint="use IN for a list of values, or split it over several subscriptions",
        )
    return _Parser(text).whole()


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse_character(text, position)
        kind = match.lastgroup or "end"
        piece = match[kind]
        start = match.start(kind)
        position = match.end()
        if kind == "word":
            found.append(_word(text, piece, start))
        else:
            found.append(Token(kind, piece, piece if kind == "sign" else "", start))
        if kind == "end":
            return found


def _word(text: str, piece: str, start: int) -> Token:
    if piece.upper() in _KEYWORDS:
        return Token("sign", piece, piece.upper(), start)
    whole, _, fraction = piece.partition(".")
    if whole.isdigit() and (not fraction or fraction.isdigit()):
        return Token("number", piece, "", start)
    if fraction and whole[0].isdigit():
        raise FilterError(
            f"{piece!r} is not a number", text=text, position=start, hint="write decimals as 12.5, without an exponent"
        )
    return Token("word", piece, "", start)


def _refuse_character(text: str, position: int) -> NoReturn:
    while text[position] in " \t\r\n":
        position += 1
    character = text[position]
    if character in "'\"":
        raise FilterError(
            "this text has no end",
            text=text,
            position=position,
            hint=f"close it with {character}; a {character} inside it is written \\{character}",
        )
    raise FilterError(
        f"unexpected character {character!r}",
        text=text,
        position=position,
        hint="texts stand in single or double quotes",
    )


class _Parser:
    """One text on its way to an expression. `_depth` bounds the recursion; the walk at the end bounds the tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._nodes = 0

    def whole(self) -> Expression:
        expression = self._operation(1)
        token = self._tokens[self._at]
        if token.kind != "end":
            self._refuse(token, "expected an operator or the end")
        for node, depth in walk(expression):
            if depth > FILTER_MAX_DEPTH:
                self._too_deep(node.position)
        return expression

    def _operation(self, minimum: int) -> Expression:
        """Operands joined by operators of at least that rank."""
        self._depth += 1
        if self._depth > FILTER_MAX_DEPTH:
            self._too_deep(self._tokens[self._at].position)
        left = self._operand()
        while (rank := _RANK.get((token := self._tokens[self._at]).sign, 0)) >= minimum:
            left = self._joined(left, token, rank)
        self._depth -= 1
        return left

    def _joined(self, left: Expression, token: Token, rank: int) -> Expression:
        operands = [left]
        while self._tokens[self._at].sign == token.sign:
            self._at += 1
            operands.append(self._operation(rank + 1))
            if rank != _LOGIC:
                break
        self._count(token)
        if rank == _LOGIC:
            return Logic(token.position, token.sign, tuple(operands))  # type: ignore[arg-type]  # _RANK's first row
        kind = Comparison if rank == _COMPARISON else Arithmetic
        sign = "!=" if token.sign == "<>" else token.sign
        return kind(token.position, sign, left, operands[1])  # type: ignore[arg-type]  # the row of _RANK that rank names

    def _operand(self) -> Expression:
        """Prefix operators, a term, and the LIKE and IN that follow it."""
        prefixes: list[Token] = []
        while (token := self._tokens[self._at]).sign == "NOT" or (token.sign == "-" and not self._signs(self._at)):
            prefixes.append(token)
            self._count(token)
            self._at += 1
        operand = self._term()
        for prefix in reversed(prefixes):
            operand = (Not if prefix.sign == "NOT" else Negate)(prefix.position, operand)
        while (token := self._tokens[self._at]).sign in {"LIKE", "IN", "NOT"}:
            operand = self._suffixed(operand, token)
        return operand

    def _suffixed(self, operand: Expression, token: Token) -> Expression:
        negated = token.sign == "NOT"
        if negated:
            self._at += 1
        operator = self._tokens[self._at]
        self._count(operator)
        self._at += 1
        if operator.sign == "LIKE":
            pattern = self._tokens[self._at]
            if pattern.kind != "text":
                self._refuse(pattern, "LIKE needs a text in quotes", hint="for example: name LIKE 'A%'")
            self._at += 1
            return Like(token.position, operand, _unquoted(pattern.text), negated)
        if operator.sign != "IN":
            self._refuse(operator, "expected LIKE or IN after NOT")
        self._expect("(", "IN needs a list in brackets")
        return Within(token.position, operand, self._list(empty_allowed=False), negated)

    def _term(self) -> Expression:
        token = self._tokens[self._at]
        self._count(token)
        self._at += 1
        match token.kind, token.sign:
            case "text", _:
                return Constant(token.position, _unquoted(token.text))
            case "number", _:
                return self._number(token, "")
            case "word", _:
                return self._named(token)
            case _, "TRUE" | "FALSE":
                return Constant(token.position, token.sign == "TRUE")
            case _, "(":
                inner = self._operation(1)
                self._expect(")", "this bracket is not closed", opened=token)
                return inner
            case _, "EXISTS":
                return Exists(token.position, self._name_after(token))
            case _, "+" | "-" if self._signs(self._at - 1):
                self._at += 1
                return self._number(self._tokens[self._at - 1], token.sign)
        return self._refuse(token, "expected a value")

    def _named(self, token: Token) -> Expression:
        if self._tokens[self._at].sign != "(":
            return Identifier(token.position, intern(token.text))  # the same few names in very many filters
        if not _FUNCTION_NAME(token.text):
            self._refuse(token, "a function's name has only letters and _")
        self._at += 1
        return Call(token.position, token.text.upper(), self._list(empty_allowed=True))

    def _name_after(self, exists: Token) -> str:
        name = self._tokens[self._at]
        if name.kind not in {"word", "number"} or (name.kind == "number" and "." in name.text):
            self._refuse(name, f"{exists.text} needs the name of a field or attribute")
        self._at += 1
        return name.text

    def _list(self, *, empty_allowed: bool) -> tuple[Expression, ...]:
        """The rest of a list whose bracket was just read."""
        opened = self._tokens[self._at - 1]
        if empty_allowed and self._tokens[self._at].sign == ")":
            self._at += 1
            return ()
        members = [self._operation(1)]
        while self._tokens[self._at].sign == ",":
            self._at += 1
            members.append(self._operation(1))
        self._expect(")", "this bracket is not closed", opened=opened)
        return tuple(members)

    def _signs(self, at: int) -> bool:
        """Whether the token there is the sign of a number right behind it."""
        sign, following = self._tokens[at], self._tokens[at + 1]
        return following.kind == "number" and following.position == sign.position + 1

    def _number(self, token: Token, sign: str) -> Constant:
        start = token.position - len(sign)
        if "." in token.text:
            return Constant(start, Decimal(sign + token.text))
        digits = token.text.lstrip("0")
        value = int(sign + digits) if 0 < len(digits) < 20 else 0  # 2**63 has 19 digits
        if len(digits) >= 20 or not INTEGER_MIN <= value <= INTEGER_MAX:
            raise FilterError(
                f"{sign}{_shortened(token.text)} does not fit into 64 bits",
                text=self._text,
                position=start,
                hint="write it as a decimal, with .0 at its end",
            )
        return Constant(start, value)

    def _count(self, token: Token) -> None:
        self._nodes += 1
        if self._nodes > FILTER_MAX_NODES:
            raise FilterTooComplex(
                f"the filter has more than {FILTER_MAX_NODES} operators and values",
                text=self._text,
                position=token.position,
                hint="split it over several subscriptions",
            )

    def _too_deep(self, position: int) -> NoReturn:
        raise FilterTooComplex(
            f"the filter is nested deeper than {FILTER_MAX_DEPTH} levels",
            text=self._text,
            position=position,
            hint="use IN for a list of values, and fewer brackets",
        )

    def _expect(self, sign: str, otherwise: str, *, opened: Token | None = None) -> None:
        token = self._tokens[self._at]
        if token.sign != sign:
            known = f"{otherwise} (opened at character {opened.position + 1})" if opened else otherwise
            self._refuse(token, known)
        self._at += 1

    def _refuse(self, token: Token, what: str, *, hint: str = "") -> NoReturn:
        seen = "the end" if token.kind == "end" else repr(_shortened(token.text))
        raise FilterError(f"{what}, not {seen}", text=self._text, position=token.position, hint=hint)


def _unquoted(literal: str) -> str:
    """Only the delimiter is ever escaped: to LIKE a `\\` has a meaning of its own, elsewhere it is a character."""
    quote, inner = literal[0], literal[1:-1]
    if quote not in inner:
        return inner
    pieces = re.findall(r"\\.|''|\"\"|.", inner, re.DOTALL)
    return "".join(quote if piece in {"\\" + quote, quote + quote} else piece for piece in pieces)


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"

"""What everybody reported, held against what should have happened. Pure: reports in, verdicts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from examples.mediator_tour.events import EXCHANGES, UNLUCKY_QUANTITY, TradeDone, trades

# Each desk, its filter in CESQL as desks.py declares it, and the same in Python.
DESKS: Final[dict[str, tuple[str, Callable[[TradeDone], bool]]]] = {
    "archive": ("everything (two processes share it)", lambda _: True),
    "ibm": ("symbol = 'IBM' AND price > 100", lambda t: t.symbol == "IBM" and t.price > Decimal(100)),
    "blocks": (
        "quantity >= 900 AND symbol IN ('SAP', 'SONY')",
        lambda t: t.quantity >= 900 and t.symbol in {"SAP", "SONY"},
    ),
    "settlement": (
        "symbol = 'ACME'",
        lambda t: t.symbol == "ACME" and t.quantity != UNLUCKY_QUANTITY,
    ),
}


@dataclass(frozen=True)
class Letter:
    """A dead letter, as far as the play is concerned."""

    desk: str
    event: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    holds: bool
    sentence: str


@dataclass
class Line:
    """One desk's trades of one exchange: what is expected next, and what came instead."""

    expected: list[int]
    handled: int = 0
    repeated: int = 0
    misplaced: list[int] = field(default_factory=list)

    def take(self, number: int) -> None:
        if self.handled < len(self.expected) and number == self.expected[self.handled]:
            self.handled += 1
        elif number in self.expected[: self.handled]:
            self.repeated += 1
        else:
            self.misplaced.append(number)

    @property
    def complete(self) -> bool:
        return self.handled == len(self.expected)


class Ledger:
    def __init__(self, count: int) -> None:
        self.count = count
        self.stored = dict.fromkeys(EXCHANGES, 0)
        self.last = dict.fromkeys(DESKS, "")
        self.letters: list[Letter] = []
        self.lines = {
            (desk, exchange): Line([trade.number for trade in trades(exchange, count) if wanted(trade)])
            for desk, (_, wanted) in DESKS.items()
            for exchange in EXCHANGES
        }

    def note_stored(self, exchange: str, number: int) -> None:
        self.stored[exchange] = number

    def note_handled(self, desk: str, exchange: str, number: int, symbol: str) -> None:
        self.lines[desk, exchange].take(number)
        self.last[desk] = f"{exchange} {number} {symbol}"

    def of_desk(self, desk: str) -> list[Line]:
        return [line for (name, _), line in self.lines.items() if name == desk]

    @property
    def published(self) -> int:
        return sum(self.stored.values())

    @property
    def total(self) -> int:
        return self.count * len(EXCHANGES)

    @property
    def complete(self) -> bool:
        return (
            self.published == self.total
            and all(line.complete for line in self.lines.values())
            and len(self.letters) >= len(EXPECTED_LETTERS)
        )

    def verdicts(self) -> Iterator[Verdict]:
        yield Verdict(
            self.published == self.total, f"{self.published} of {self.total} trades published and acknowledged"
        )
        for desk in DESKS:
            lines = self.of_desk(desk)
            handled, expected = sum(line.handled for line in lines), sum(len(line.expected) for line in lines)
            misplaced = sum(len(line.misplaced) for line in lines)
            repeated = sum(line.repeated for line in lines)
            said = (
                f"{desk}: {handled} of {expected} handled, none lost"
                if handled == expected
                else f"{desk}: {handled} of {expected}"
            )
            said += ", each exchange in order" if not misplaced else f", {misplaced} out of order or not wanted"
            said += f", {repeated} repeated after the restart" if repeated else ""
            yield Verdict(handled == expected and not misplaced, said)
        missing = [letter for letter in EXPECTED_LETTERS if not any(_fits(found, letter) for found in self.letters)]
        surplus = len(self.letters) - len(EXPECTED_LETTERS) + len(missing)
        yield Verdict(
            not missing and not surplus,
            f"{len(self.letters)} dead letters, each for its reason"
            if not missing and not surplus
            else f"dead letters: {len(missing)} missing, {surplus} too many",
        )


# The desk, and a part of the reason. The poisoned trade has ACME in its subject: the server offers it only to those
# whose filter lets ACME pass.
EXPECTED_LETTERS: Final = (
    Letter("settlement", "", "refuses a quantity of 13"),
    Letter("archive", "", "price"),
    Letter("settlement", "", "price"),
)


def _fits(found: Letter, expected: Letter) -> bool:
    return found.desk == expected.desk and expected.reason in found.reason

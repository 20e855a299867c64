"""One history out of the logs of many processes. Pure: log records in, rows out.

All processes are on one machine, so their clocks are one clock; records reach us by pipes, in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

MANAGERS: Final = frozenset({"organiser", "deputy"})
LANES: Final = ("organiser", "rooms", "ann", "bob", "tickets", "deputy")
STAGED: Final = frozenset({"staged", "killed"})
TOGETHER_SECONDS: Final = 0.25  # what several do within so long, and independently, is one row

# What is in the logs as well, and would only repeat what another record of the same moment says.
_UNSEEN: Final = frozenset({"proposed", "heard", "ended", "handled", "over"})
_HASH: Final = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}\b")
_PLURAL: Final = {
    "asks": "ask",
    "handles": "handle",
    "has": "have",
    "its": "their",
    "learns": "learn",
    "takes": "take",
    "tells": "tell",
    "undoes": "undo",
    "votes": "vote",
}
_REPEATED: Final = frozenset({"asked", "voted", "doubted", "announced", "told"})  # until they are heard: said once here


@dataclass(frozen=True)
class Entry:
    """Somebody did something. `who` is the process that says so."""

    time: float
    who: str
    step: str
    sentence: str
    tx: str = ""
    said: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # of what is staged: who else it happens to

    @property
    def shown(self) -> bool:
        return self.step not in _UNSEEN


@dataclass(frozen=True)
class Row:
    """A line of the picture: one moment, one sentence, and all whom it is true of."""

    time: float
    who: tuple[str, ...]
    step: str
    sentence: str
    said: Mapping[str, Any]


def entry(who: str, record: Mapping[str, Any]) -> Entry | None:
    """A log record as `--log json` writes it; None if it is no step of a transaction."""
    if record.get("logger") != "tutti.transactions" or "step" not in record:
        return None
    tx, role = str(record["tx"]), str(record["role"])
    sentence = str(record["message"]).removeprefix(f"{tx}: ").removeprefix(f"{role} ")
    time = datetime.fromisoformat(str(record["time"])).timestamp()
    return Entry(time, who, str(record["step"]), sentence, tx, record)


class Cast:
    """Who is who: members know each other only by pseudonyms, new in each transaction; here the names are put in."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._said: set[tuple[str, ...]] = set()

    def meet(self, entry: Entry) -> None:
        member = str(entry.said.get("member", ""))
        if member and entry.who not in MANAGERS:
            self._names[member] = self._names[member[:8]] = entry.who

    def name(self, member: str) -> str:
        return self._names.get(member, member)

    def once(self, entry: Entry) -> bool:
        """False if it was said before, in this transaction."""
        said = (entry.tx, entry.who, entry.step, entry.sentence)
        fresh = said not in self._said
        self._said.add(said)
        return fresh or entry.step not in _REPEATED

    def named(self, sentence: str) -> str:
        return _HASH.sub(lambda found: self._names.get(found[0], found[0]), sentence)


def rows(entries: Iterable[Entry], cast: Cast) -> list[Row]:
    """In the order of time. Independent steps of the same kind come together; nobody's own steps change places, and
    nothing passes a step of a manager."""
    made: list[Row] = []
    for one in sorted(entries, key=lambda entry: entry.time):
        if not (one.shown and cast.once(one)):
            continue
        sentence = cast.named(one.sentence)
        place = _joined(made, one, sentence)
        if place is None:
            made.append(Row(one.time, (one.who, *one.also), one.step, sentence, one.said))
        else:
            made[place] = _with(made[place], one.who)
    return made


def _joined(made: Sequence[Row], one: Entry, sentence: str) -> int | None:
    if one.who in MANAGERS or one.step in STAGED:
        return None
    for place in range(len(made) - 1, -1, -1):
        row = made[place]
        if one.time - row.time > TOGETHER_SECONDS or one.who in row.who:
            return None
        if (row.step, row.sentence) == (one.step, sentence):
            return place
        if row.step in STAGED or not MANAGERS.isdisjoint(row.who):
            return None
    return None


def _with(row: Row, who: str) -> Row:
    names = tuple(lane for lane in LANES if lane in {*row.who, who})
    return Row(row.time, names, row.step, row.sentence, row.said)


def spoken(row: Row) -> str:
    """The sentence with its subject."""
    if len(row.who) == 1:
        return f"{row.who[0]} {row.sentence}"
    *others, last = row.who
    verb, *rest = row.sentence.split(" ")
    words = " ".join(("are" if verb == "is" else _PLURAL.get(verb, verb), *(_PLURAL.get(word, word) for word in rest)))
    return f"{', '.join(others)} and {last} {words}"

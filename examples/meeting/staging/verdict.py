"""What was promised, held against what happened. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from examples.meeting.staging.databases import Rows
from examples.meeting.staging.episodes import Episode
from examples.meeting.staging.timeline import Entry


@dataclass(frozen=True)
class Verdict:
    number: int
    title: str
    expected: str
    actual: str
    consistent: bool  # every database holds what it should
    prepared: int  # branches that are left
    wrong: tuple[str, ...]  # in words; nothing, if every promise was kept

    @property
    def holds(self) -> bool:
        return not self.wrong


def outcomes(entries: Iterable[Entry]) -> Mapping[str, str]:
    """What each of them knows of the outcome; the organiser's is what its manager read from the journal."""
    return {one.who: str(one.said["outcome"]) for one in entries if one.step in {"decided", "learned"}}


def verdict(
    episode: Episode, found: Rows, prepared: Sequence[str], entries: Iterable[Entry], wrong: Iterable[str]
) -> Verdict:
    """`wrong` is what else did not go as promised."""
    actual = "/".join(sorted(set(outcomes(entries).values()))) or "nothing"
    odd = [
        f"{name} holds {', '.join(found.get(name, ())) or 'nothing'}, and not {', '.join(rows) or 'nothing'}"
        for name, rows in episode.rows.items()
        if found.get(name, ()) != rows
    ]
    left = [f"{name} holds a prepared branch" for name in prepared]
    other = [f"the outcome is {actual}"] if actual != episode.expected else []
    return Verdict(
        number=episode.number,
        title=episode.title,
        expected=episode.expected,
        actual=actual,
        consistent=not odd,
        prepared=len(prepared),
        wrong=(*wrong, *other, *odd, *left),
    )

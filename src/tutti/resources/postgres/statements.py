"""What a user's statement may not be: the end of the transaction. Looked at before it is sent.

Only the first words count. Statements behind a semicolon are not looked at, because the text of a function may hold
such words too; whoever ends the transaction that way is found out when it should be prepared (see `resource.py`).
"""

from __future__ import annotations

import re
from typing import Final

from tutti.errors import OutcomeNotYours

_BLANKS: Final = r"\s*(?:(?:--[^\n]*\n|/\*.*?\*/)\s*)*"
_ENDS: Final = re.compile(
    _BLANKS + r"(?P<word>begin|start\s+transaction|commit|end|abort|prepare\s+transaction"
    r"|rollback(?!(?:\s+(?:work|transaction))?\s+to\b)|discard)\b",
    re.IGNORECASE | re.DOTALL,
)
_CHANGES: Final = re.compile(
    _BLANKS + r"(?:insert|update|delete|merge|copy|create|alter|drop|truncate)\b", re.IGNORECASE
)
_NOTIFICATIONS: Final = re.compile(r"\b(?:un)?listen\b|notify\b", re.IGNORECASE)


def refuse_ending(statement: str) -> None:
    if found := _ENDS.match(statement):
        raise not_yours(" ".join(found["word"].upper().split()))


def not_yours(what: str) -> OutcomeNotYours:
    return OutcomeNotYours(
        f"{what} on a connection that belongs to a transaction: its outcome is not decided here",
        hint="raise an exception or call tx.set_abort(reason) to abort; return to agree; "
        "use a savepoint (a nested transaction) for a part that may fail",
    )


def work_ended() -> OutcomeNotYours:
    return OutcomeNotYours(
        "the work has ended, its connection is given back", hint="do all of the work before the handler returns"
    )


def changes(statement: str) -> bool:
    """Whether it is one that changes something, as a rule. Others may change something too: only the server knows."""
    return _CHANGES.match(statement) is not None


def notifies(statement: str) -> bool:
    """Whether it may leave a notification, which PostgreSQL does not count as a change."""
    return _NOTIFICATIONS.search(statement) is not None

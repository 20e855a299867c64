"""What does the own log hold of us, and what may it hold?

1. A record is written before what it says is said: a yes always, a no where a crash could make another vote of it.
2. Records are written in order, so a no stands in the log when nothing is being written any more.
3. A no that could not be written is written again after a pause; until then it is not said.
"""

from __future__ import annotations

from tutti.control.participation.messages import LogFailed, LogWritten, WriteLog
from tutti.limits import FINISH_RETRY_SECONDS
from tutti.model.transaction import ParticipantRecord


class Notes:
    """`there`: a record is in the log. `unsaid`: why the vote is no, while that is being written down. `wake_at`: when
    to write it again, or None."""

    __slots__ = ("_no", "_writing", "there", "unsaid", "wake_at")

    def __init__(self) -> None:
        self._writing = 0
        self._no: WriteLog | None = None
        self.there = False
        self.unsaid = ""
        self.wake_at: float | None = None

    def write(self, record: ParticipantRecord) -> WriteLog:
        self._writing += 1
        return WriteLog(record)

    def write_no(self, record: ParticipantRecord, reason: str) -> WriteLog:
        self.there, self.unsaid = True, reason
        self._no = self.write(record)
        return self._no

    def answer(self, given: LogWritten | LogFailed, now: float) -> str:
        """The no that may be said now, or ""."""
        self._writing = max(0, self._writing - 1)
        if not self.unsaid or self._writing:
            return ""
        if isinstance(given, LogFailed):
            self.wake_at = now + FINISH_RETRY_SECONDS
            return ""
        said, self.unsaid = self.unsaid, ""
        return said

    def tick(self, now: float) -> list[WriteLog]:
        if self._no is None or self.wake_at is None or now < self.wake_at:
            return []
        self.wake_at = None
        self._writing += 1
        return [self._no]

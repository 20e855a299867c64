"""The journal's port and its values.

The journals themselves are in `tutti.journal.sqlite` and `tutti.journal.postgres`: no driver is loaded by accident.
"""

from __future__ import annotations

from tutti.journal.participants import Enrolment, LogRow, Parked, ParticipantLog, Resolution
from tutti.journal.port import Journal
from tutti.journal.records import (
    Answer,
    Dossier,
    Entry,
    Heuristic,
    Proposal,
    QueuedStatus,
    Sent,
    Undecided,
    Unknown,
)

__all__ = [
    "Answer",
    "Dossier",
    "Enrolment",
    "Entry",
    "Heuristic",
    "Journal",
    "LogRow",
    "Parked",
    "ParticipantLog",
    "Proposal",
    "QueuedStatus",
    "Resolution",
    "Sent",
    "Undecided",
    "Unknown",
]

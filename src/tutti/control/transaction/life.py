"""The life of a transaction at its manager. Every change is a look into `TRANSITIONS`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tutti.control.table import Row, Table


class Stage(StrEnum):
    NEW = "new"
    INVITING = "inviting"
    REGISTERING = "registering"
    WORKING = "working"
    CLOSING = "closing"
    COMMITTING = "committing"
    ENDED = "ended"
    FAILED = "failed"  # there never was a transaction
    FENCED = "fenced"


class Cause(StrEnum):
    CENSUS = "census"
    GROUP = "group"
    SUCCESSION = "succession"
    SETTLED = "settled"
    FAILURE = "failure"
    REGISTERED = "registered"
    CLOSE = "close"
    CLOSED = "closed"
    REOPENED = "reopened"
    DECISION = "decision"
    FINISH = "finish"
    FENCE = "fence"


class Guard(StrEnum):
    """None: what is allowed when is decided by the parts."""


_FENCE: Final[dict[Cause, Row[Stage, Guard]]] = {Cause.FENCE: Row(Stage.FENCED)}

TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.NEW: {
        Cause.CENSUS: Row(Stage.INVITING),
        Cause.GROUP: Row(Stage.REGISTERING),
        Cause.SUCCESSION: Row(Stage.COMMITTING),
        **_FENCE,
    },
    Stage.INVITING: {Cause.SETTLED: Row(Stage.REGISTERING), Cause.FAILURE: Row(Stage.FAILED)},
    Stage.REGISTERING: {
        Cause.REGISTERED: Row(Stage.WORKING),
        Cause.FAILURE: Row(Stage.FAILED),
        **_FENCE,
    },
    Stage.WORKING: {Cause.CLOSE: Row(Stage.CLOSING), Cause.DECISION: Row(Stage.COMMITTING), **_FENCE},
    Stage.CLOSING: {Cause.CLOSED: Row(Stage.COMMITTING), Cause.DECISION: Row(Stage.COMMITTING), **_FENCE},
    Stage.COMMITTING: {Cause.REOPENED: Row(Stage.CLOSING), Cause.FINISH: Row(Stage.ENDED), **_FENCE},
    Stage.ENDED: {},
    Stage.FAILED: {},
    Stage.FENCED: {},
}

"""The life of a participation. Every change is a look into `TRANSITIONS`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tutti.control.table import Row, Table
from tutti.model.messages import DoubtState
from tutti.model.transaction import LogState


class Stage(StrEnum):
    NEW = "new"
    JOINED = "joined"
    WORKING = "working"
    PREPARING = "preparing"
    LOGGING = "logging"  # prepared; the yes is being written down
    VOTED = "voted"
    COMMITTING = "committing"
    REFUSING = "refusing"  # voted no, and undoes its work
    REFUSED = "refused"  # undone; the decision is not known
    UNDOING = "undoing"  # the decision is abort, or leaves this member out
    RESOLVED = "resolved"  # finished by an operator; the decision is not known
    ENDED = "ended"
    FORGOTTEN = "forgotten"  # as if it had never joined


class Cause(StrEnum):
    ACCEPT = "accept"
    ENROL = "enrol"
    BEGIN = "begin"
    OMISSION = "omission"  # a begin without us
    DISMISS = "dismiss"
    EVENT = "event"
    CLOSE = "close"
    PREPARE = "prepare"
    READY = "ready"
    PREPARED = "prepared"
    COMMITTED_EARLY = "committed early"
    LOGGED = "logged"
    FAILURE = "failure"
    COMMIT = "commit"
    ABORT = "abort"
    LEARN = "learn"  # the decision, while the work is being finished
    FINISH = "finish"
    FINISH_ALONE = "finish alone"
    RESOLVE_COMMIT = "resolve: commit"
    RESOLVE_ABORT = "resolve: abort"
    SURRENDER = "surrender"


class Guard(StrEnum):
    MANAGER = "signed by the manager"
    LISTED = "on the list"
    NOT_LISTED = "not on the list"
    CURRENT = "not of an older epoch or round"
    LATER_ROUND = "of a later round than the vote"
    NEW_EVENT = "seen for the first time"
    IDLE = "no handler is at work"
    COUNTS_AGREE = "everything that was counted was handled"
    THIS_ROUND = "the answer to the last request"
    DECIDED = "the decision is known"
    UNDECIDED = "the decision is not known"


_EVENT: Final = (Guard.NEW_EVENT,)
_SIGNED: Final = (Guard.MANAGER,)
_FRESH: Final = (Guard.MANAGER, Guard.CURRENT)

TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.NEW: {Cause.ACCEPT: Row(Stage.JOINED), Cause.ENROL: Row(Stage.WORKING)},
    Stage.JOINED: {
        Cause.BEGIN: Row(Stage.WORKING, (Guard.MANAGER, Guard.LISTED)),
        Cause.OMISSION: Row(Stage.FORGOTTEN, (Guard.MANAGER, Guard.NOT_LISTED)),
        Cause.DISMISS: Row(Stage.FORGOTTEN, _SIGNED),
        Cause.ABORT: Row(Stage.FORGOTTEN, _SIGNED),
        Cause.SURRENDER: Row(Stage.FORGOTTEN),
        Cause.EVENT: Row(Stage.JOINED, _EVENT),
    },
    Stage.WORKING: {
        Cause.EVENT: Row(Stage.WORKING, _EVENT),
        Cause.CLOSE: Row(Stage.WORKING, _FRESH),
        Cause.PREPARE: Row(Stage.WORKING, _FRESH),
        Cause.READY: Row(Stage.PREPARING, (Guard.IDLE, Guard.COUNTS_AGREE)),
        Cause.FAILURE: Row(Stage.REFUSING),
        Cause.ABORT: Row(Stage.UNDOING, _SIGNED),
    },
    Stage.PREPARING: {
        Cause.EVENT: Row(Stage.PREPARING, _EVENT),
        Cause.PREPARED: Row(Stage.LOGGING, (Guard.THIS_ROUND,)),
        Cause.COMMITTED_EARLY: Row(Stage.VOTED, (Guard.THIS_ROUND,)),
        Cause.FAILURE: Row(Stage.REFUSING),
        Cause.ABORT: Row(Stage.UNDOING, _SIGNED),
    },
    Stage.LOGGING: {
        Cause.EVENT: Row(Stage.LOGGING, _EVENT),
        Cause.LOGGED: Row(Stage.VOTED, (Guard.THIS_ROUND,)),
        Cause.FAILURE: Row(Stage.REFUSING),
        Cause.ABORT: Row(Stage.UNDOING, _SIGNED),
    },
    Stage.VOTED: {  # no failure, no surrender: from here on it only asks
        Cause.EVENT: Row(Stage.VOTED, _EVENT),
        Cause.CLOSE: Row(Stage.WORKING, (Guard.MANAGER, Guard.LATER_ROUND)),
        Cause.PREPARE: Row(Stage.WORKING, (Guard.MANAGER, Guard.LATER_ROUND)),
        Cause.COMMIT: Row(Stage.COMMITTING, _SIGNED),
        Cause.ABORT: Row(Stage.UNDOING, _SIGNED),
        Cause.RESOLVE_COMMIT: Row(Stage.COMMITTING),
        Cause.RESOLVE_ABORT: Row(Stage.UNDOING),
    },
    Stage.COMMITTING: {
        Cause.LEARN: Row(Stage.COMMITTING, _SIGNED),
        Cause.FINISH: Row(Stage.ENDED, (Guard.DECIDED,)),
        Cause.FINISH_ALONE: Row(Stage.RESOLVED, (Guard.UNDECIDED,)),
    },
    Stage.REFUSING: {
        Cause.LEARN: Row(Stage.REFUSING, _SIGNED),
        Cause.FINISH: Row(Stage.ENDED, (Guard.DECIDED,)),
        Cause.FINISH_ALONE: Row(Stage.REFUSED, (Guard.UNDECIDED,)),
    },
    Stage.UNDOING: {
        Cause.LEARN: Row(Stage.UNDOING, _SIGNED),
        Cause.FINISH: Row(Stage.ENDED, (Guard.DECIDED,)),
        Cause.FINISH_ALONE: Row(Stage.RESOLVED, (Guard.UNDECIDED,)),
    },
    Stage.REFUSED: {Cause.LEARN: Row(Stage.ENDED, _SIGNED), Cause.SURRENDER: Row(Stage.ENDED)},
    Stage.RESOLVED: {Cause.LEARN: Row(Stage.ENDED, _SIGNED)},
    Stage.ENDED: {},
    Stage.FORGOTTEN: {},
}

FINISHING: Final = frozenset({Stage.COMMITTING, Stage.REFUSING, Stage.UNDOING})
RESUMED: Final[dict[LogState, Stage]] = {  # what the own log says, after a crash
    "working": Stage.WORKING,
    "voted": Stage.VOTED,
    "committed": Stage.ENDED,
    "aborted": Stage.ENDED,
}
QUESTIONS: Final[dict[Stage, DoubtState]] = {  # the three states of doubt
    Stage.JOINED: "joined",
    Stage.WORKING: "working",
    Stage.VOTED: "voted",
    Stage.REFUSED: "working",  # nothing depends on it; but a note of the no stays in the log until the end is known
    Stage.RESOLVED: "voted",  # what was decided after all
}

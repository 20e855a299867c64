from __future__ import annotations

from enum import StrEnum

from tutti.control.table import Row, Table, weakened


class _State(StrEnum):
    ON = "on"
    OFF = "off"


class _Cause(StrEnum):
    PUSH = "push"


class _Guard(StrEnum):
    POWER = "power"
    FUSE = "fuse"


TABLE: Table[_State, _Cause, _Guard] = {
    _State.OFF: {_Cause.PUSH: Row(_State.ON, (_Guard.POWER, _Guard.FUSE))},
    _State.ON: {_Cause.PUSH: Row(_State.OFF)},
}


def test_every_guard_is_taken_away_once() -> None:
    assert list(weakened(TABLE)) == [
        (_State.OFF, _Cause.PUSH, _Guard.POWER, Row(_State.ON, (_Guard.FUSE,))),
        (_State.OFF, _Cause.PUSH, _Guard.FUSE, Row(_State.ON, (_Guard.POWER,))),
    ]


def test_the_table_itself_stays_as_it_is() -> None:
    for state, cause, _, row in weakened(TABLE):
        assert TABLE[state][cause] != row

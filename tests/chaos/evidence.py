"""What a run leaves behind: everything that the checker looks at, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.chaos.workload import Acknowledged, Counters, Handling, NewLines


class ServerKilled(msgspec.Struct, frozen=True, tag="server"):
    """From `time` to `back` the server did not answer."""

    time: float
    back: float
    pid: int


class InstanceKilled(msgspec.Struct, frozen=True, tag="subscriber"):
    """`positions`: what stood in the state right after the kill, by partition: everything up to there is acknowledged
    as done. None if the server was away itself, so that nobody could look before a successor was at work."""

    time: float
    subscriber: str
    run: str
    positions: Mapping[int, int] | None


Killed = ServerKilled | InstanceKilled


class Complaint(msgspec.Struct, frozen=True, array_like=True):
    """A warning or an error that a process wrote into its log."""

    level: str
    logger: str
    time: float
    text: str


class Evidence(msgspec.Struct, frozen=True):
    events: int  # that should have been published
    seconds: float
    acknowledged: list[Acknowledged]
    handled: list[Handling]  # of each run in the order in which it happened
    kills: list[Killed]
    counters: list[Counters]
    complaints: list[Complaint]
    stored: int  # records in the stream
    dead_letters: int
    crashed: list[str]  # processes that ended otherwise than they should
    left: list[str]  # processes that are still there


def marks_of(folder: Path) -> tuple[list[Acknowledged], list[Handling], list[Counters], list[Complaint]]:
    """Everything that the processes wrote."""
    acknowledged = msgspec.json.Decoder(Acknowledged).decode
    handling = msgspec.json.Decoder(Handling).decode
    return (
        [acknowledged(line) for line in NewLines(folder, "acknowledged-*")],
        [handling(line) for line in NewLines(folder, "handled-*")],
        [msgspec.json.decode(line, type=Counters) for line in NewLines(folder, "counters-*")],
        [msgspec.json.decode(line, type=Complaint) for line in NewLines(folder, "log-*")],
    )

"""What of a subscriber survives its process: the database, its own log, recorded heuristics; and where events are."""

from __future__ import annotations

from tutti.model.transaction import Outcome, ParticipantRecord
from tutti.simulation.database import Database
from tutti.simulation.facts import Logged
from tutti.simulation.ground import Ground
from tutti.simulation.log import Log
from tutti.simulation.site import Site
from tutti.simulation.workloads import Habits


class Workplace(Site):
    """`records` is its own log, by place."""

    log: Log  # the bus; set once it exists

    def __init__(self, name: str, ground: Ground, habits: Habits) -> None:
        super().__init__(name, ground)
        self.habits = habits
        self.database = Database(name, ground)
        self.records: dict[str, ParticipantRecord] = {}
        self.mended = False  # the operator looked after its compensator
        self.heuristics: dict[str, Outcome] = {}  # how an operator had a branch finished

    def write_record(self, place: str, record: ParticipantRecord) -> None:
        self.records[place] = record
        self.ground.see(self.name, Logged(record.tx, place, record))

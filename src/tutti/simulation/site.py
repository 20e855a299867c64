"""A process: it dies, stands still, and has a clock of its own."""

from __future__ import annotations

from collections.abc import Callable

from tutti.simulation.ground import Ground


class Site:
    """What is due for a process that has died meanwhile never happens. A subclass says what is lost in a crash, and
    what a new process does."""

    def __init__(self, name: str, ground: Ground) -> None:
        self.name, self.ground = name, ground
        self.up = True
        self.incarnation = 1
        self.paused_until = 0.0
        self._offset = 0.0
        self._alarms: list[Alarm] = []

    @property
    def now(self) -> float:
        """By its own clock."""
        return self.ground.agenda.now + self._offset

    @property
    def awake(self) -> bool:
        return self.up and self.ground.agenda.now >= self.paused_until

    def later(self, delay: float, act: Callable[[], None]) -> None:
        self.at(self.ground.agenda.now + delay, act)

    def at(self, time: float, act: Callable[[], None]) -> None:
        """By the world's clock."""
        born = self.incarnation

        def fire() -> None:
            if self.incarnation != born:
                return
            if self.ground.agenda.now < self.paused_until:
                self.ground.agenda.at(self.paused_until, fire)
                return
            act()

        self.ground.agenda.at(time, fire)

    def alarm(self, act: Callable[[float], None]) -> Alarm:
        alarm = Alarm(self, act)
        self._alarms.append(alarm)
        return alarm

    def local(self, time: float) -> float:
        """When its own clock shows `time`, by the world's."""
        return time - self._offset

    def pause(self, until: float) -> None:
        self.ground.say(self.name, "", f"stands still until {until:.3f}")
        self.paused_until = max(self.paused_until, until)

    def jump(self, by: float) -> None:
        self.ground.say(self.name, "", f"its clock jumps by {by:+.1f} seconds")
        self._offset += by
        for alarm in self._alarms:
            alarm.rearm()

    def crash(self, down: float) -> None:
        if not self.up:
            return
        self.ground.say(self.name, "", f"dies, for {down:.1f} seconds")
        self.up = False
        self.incarnation += 1
        self.paused_until = 0.0
        self._alarms.clear()
        self.lose()
        self.later(down, self.restart)

    def restart(self) -> None:
        if self.up:
            return
        self.ground.say(self.name, "", "is started")
        self.up = True
        self.begin()

    def lose(self) -> None:
        """What was in memory is gone."""

    def begin(self) -> None:
        """A new process."""


class Alarm:
    """One timer of one machine, on the clock of its site; it is told the time by that."""

    __slots__ = ("_act", "_number", "_site", "time")

    def __init__(self, site: Site, act: Callable[[float], None]) -> None:
        self._site, self._act = site, act
        self._number = 0
        self.time: float | None = None

    def set(self, time: float | None) -> None:
        self.time = time
        self.rearm()

    def rearm(self) -> None:
        self._number += 1
        if self.time is None:
            return
        number = self._number
        self._site.at(self._site.local(self.time), lambda: self._ring(number))

    def _ring(self, number: int) -> None:
        if number != self._number or self.time is None:
            return
        if self._site.now < self.time - 1e-6:
            self.rearm()
            return
        now = max(self.time, self._site.now)
        self.time = None
        self._act(now)

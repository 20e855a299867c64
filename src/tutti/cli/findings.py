"""What `tutti doctor` finds: how bad it is, about what, and what to do."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    level: Level
    area: str
    what: str
    todo: str = ""

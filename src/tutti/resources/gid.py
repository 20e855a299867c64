"""The name of a branch in a database: `prefix:owner:tx:branch`.

1. Every part is made of letters, digits, `_` and `-`; the colons are ours. So a name splits in one way only, can stand
   in a statement without quoting, and cannot be mistaken for the name of somebody else's transaction.
2. `prefix` says that Tutti made it (several installations on one database may take several prefixes), `owner` which
   participant, `tx` and `branch` for what. A reaper touches only names whose prefix and owner are its own.
3. What does not fit is refused when the branch begins, never cut: a shortened name could be another's.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tutti.errors import DeclarationError
from tutti.limits import GID_MAX_CHARACTERS

PREFIX: Final = "tutti"
_PART: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class BranchId(msgspec.Struct, frozen=True, order=True):
    """The part of one resource in one transaction, on behalf of one participant (`owner`)."""

    owner: str
    tx: str
    branch: str

    def __str__(self) -> str:
        return f"{self.owner}:{self.tx}:{self.branch}"


def gid_of(prefix: str, branch: BranchId) -> str:
    parts = {"prefix": prefix, "owner": branch.owner, "transaction": branch.tx, "branch": branch.branch}
    for name, part in parts.items():
        if not _PART.fullmatch(part):
            raise DeclarationError(
                f"the {name} {part!r} cannot be part of a prepared transaction's name",
                hint="use letters, digits, '_' and '-' only",
            )
    gid = ":".join(parts.values())
    if len(gid) > GID_MAX_CHARACTERS:
        raise DeclarationError(
            f"the prepared transaction's name {gid!r} has {len(gid)} characters; {GID_MAX_CHARACTERS} are allowed",
            hint="shorten the names of the participant and of the resource",
        )
    return gid


def branch_of(prefix: str, owner: str, gid: str) -> BranchId | None:
    """The branch that a name stands for; None if that name is not exactly one of this prefix and owner ("": any)."""
    parts = gid.split(":")
    if len(parts) != 4 or not all(_PART.fullmatch(part) for part in parts):
        return None
    if parts[0] != prefix or owner not in {"", parts[1]}:
        return None
    return BranchId(parts[1], parts[2], parts[3])


def gid_start(prefix: str, owner: str) -> str:
    """What every name of this owner ("": of any) starts with, the colon included: `rooms` is not `rooms-2`."""
    return gid_of(prefix, BranchId(owner or "x", "x", "x")).removesuffix("x:x" if owner else "x:x:x")

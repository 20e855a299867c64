from __future__ import annotations

import msgspec

from tutti.cli.findings import Finding


def test_a_finding_is_told_as_it_is() -> None:
    found = Finding("problem", "journal", "it is gone", "restore it")
    assert msgspec.to_builtins(found) == {
        "level": "problem",
        "area": "journal",
        "what": "it is gone",
        "todo": "restore it",
    }

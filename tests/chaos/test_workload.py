"""The marks that processes leave."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.workload import ACCOUNTS_COUNT, PUBLISHERS, REGIONS, Marks, NewLines, Tick, account_of


def test_a_torn_last_line_is_not_read_until_it_is_whole(tmp_path: Path) -> None:
    marks, lines = Marks(tmp_path / "handled-a"), NewLines(tmp_path, "handled-*")
    marks.add(1, 2)
    assert list(lines) == [b"1", b"2"]
    with (tmp_path / "handled-a").open("ab") as file:
        file.write(b"[3")
    assert list(lines) == []
    with (tmp_path / "handled-a").open("ab") as file:
        file.write(b"]\n")
    assert list(lines) == [b"[3]"]


def test_events_spread_over_subjects_accounts_and_partitions() -> None:
    ticks = [Tick.numbered("north", number) for number in range(1, 200)]
    assert {tick.region for tick in ticks} == set(REGIONS)
    assert {account_of(tick.number) for tick in ticks} == {f"a{n}" for n in range(ACCOUNTS_COUNT)}
    assert len({plan.partition for plan in PUBLISHERS}) == len(PUBLISHERS)
    assert sum(plan.share for plan in PUBLISHERS) == 1

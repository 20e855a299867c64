from __future__ import annotations

from typing import Any

import pytest

from tutti.cli import operating, remedies, standing_groups, timelines, transactions
from tutti.cli.app import start


@pytest.mark.parametrize(
    ("line", "module", "name", "given"),
    [
        ("tx ls", transactions, "show_transactions", (("", ""), {"every": False})),
        ("tx ls --all --journal J", transactions, "show_transactions", (("J", ""), {"every": True})),
        ("tx ls --state orphaned", transactions, "show_transactions", (("", "orphaned"), {"every": False})),
        ("tx show a-b-1 --journal J", timelines, "show_transaction", (("J", "a-b-1"), {})),
        ("tx watch", transactions, "watch_transactions", (("",), {})),
        ("tx abort a-b-1 --reason R", remedies, "abort_transaction", (("a-b-1", "", "R", []), {})),
        (
            "tx resolve a-b-1 commit --subscriber rooms --resources m:a --resources m:b",
            remedies,
            "resolve_transaction",
            (("a-b-1", "commit", ""), {"subscriber": "rooms", "resources": ["m:a", "m:b"]}),
        ),
        ("tx forget a-b-1 --force", remedies, "forget_transaction", (("a-b-1", ""), {"force": True})),
        ("tx retry a-b-1 --subscriber rooms", remedies, "retry_transaction", (("a-b-1", "", "rooms"), {})),
        ("group ls", standing_groups, "show_groups", (("",), {})),
        ("group ls venues", standing_groups, "show_groups", (("venues",), {})),
        ("group rm venues rooms", standing_groups, "remove_member", (("venues", "rooms", ""), {"force": False})),
    ],
)  # fmt: skip
def test_words_arrive_where_they_belong(
    monkeypatch: pytest.MonkeyPatch, line: str, module: Any, name: str, given: object
) -> None:
    calls: list[object] = []

    async def called(_session: object, *args: object, **options: object) -> None:
        calls.append((args, options))

    monkeypatch.setattr(module, name, called)
    assert start(line.split()) == 0
    assert calls == [given]


@pytest.mark.parametrize(
    "line", ["tx show", "tx abort", "tx resolve a-b-1", "tx forget", "tx retry", "group rm venues"]
)
def test_a_transaction_is_always_named(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(line.split()) == 2
    assert "Missing argument" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["tx", "group"])
def test_each_group_has_its_help(line: str) -> None:
    assert all(group.info.help for group in (operating.tx, operating.group))
    assert start([line, "--help"]) == 0

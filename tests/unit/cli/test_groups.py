from __future__ import annotations

from typing import Any

import pytest

from tutti.cli import catalogue, groups, letters, queues, subscriptions
from tutti.cli.app import start


@pytest.mark.parametrize(
    ("line", "module", "name", "given"),
    [
        ("types ls", catalogue, "show_types", ((), {})),
        ("types show TradeDone", catalogue, "show_type", (("TradeDone",), {})),
        ("types asyncapi --out f --title T", catalogue, "document_types", (("f", "T"), {})),
        ("dead ls --subscriber desk", letters, "show_letters", (("desk",), {})),
        ("dead show 7", letters, "show_one_letter", ((7,), {})),
        (
            "dead replay 1 2",
            letters,
            "settle_letters",
            (("replayed", [1, 2]), {"every": False, "subscriber": ""}),
        ),
        (
            "dead drop --all --subscriber desk",
            letters,
            "settle_letters",
            (("dropped", []), {"every": True, "subscriber": "desk"}),
        ),
        ("types advertise desk:A desk:B", catalogue, "advertise", ((["desk:A", "desk:B"],), {})),
        ("queues ls", queues, "show_queues", ((), {})),
        ("subscribers ls", subscriptions, "show_subscriptions", ((), {"verbose": False})),
        ("subscribers ls -v", subscriptions, "show_subscriptions", ((), {"verbose": True})),
        ("subscribers drop desk --force", subscriptions, "drop", (("desk",), {"force": True})),
    ],
)
def test_words_arrive_where_they_belong(
    monkeypatch: pytest.MonkeyPatch, line: str, module: Any, name: str, given: object
) -> None:
    calls: list[object] = []

    async def called(_session: object, *args: object, **options: object) -> None:
        calls.append((args, options))

    monkeypatch.setattr(module, name, called)
    assert start(line.split()) == 0
    assert calls == [given]


def test_each_group_has_its_help() -> None:
    assert all(group.info.help for group in (groups.types, groups.dead, groups.queues, groups.subscribers))

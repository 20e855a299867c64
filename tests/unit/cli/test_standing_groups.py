from __future__ import annotations

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.operated import site
from tests.unit.runtime.transactions.operated import Site
from tutti.cli import standing_groups
from tutti.cli.output import ConsoleOutput
from tutti.cli.standing_groups import GroupList, remove_member, show_groups
from tutti.errors import TuttiError
from tutti.journal import Enrolment as Secret
from tutti.model.enrolment import Enrolment, encode_enrolment

__all__ = ["site"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_groups, "GROUP_LISTEN_SECONDS", 0.1)


async def enrolled(session: MemorySession, group: str, name: str, instance: str = "") -> None:
    async with session.bus() as bus:
        one = Enrolment(group, name, "Meeting", "p", "k", "w", ("Invitation",), instance=instance)
        await bus.context.transport.state_put(one.record_key, encode_enrolment(one), expected=0)


async def test_members_are_listed(session: MemorySession, capsys: pytest.CaptureFixture[str]) -> None:
    await show_groups(session, "")
    await enrolled(session, "venues", "rooms", "rooms-0")
    await enrolled(session, "desks", "london")
    await show_groups(session, "")
    await show_groups(session, "venues")
    none, both, one = session.answers.shown
    assert none.members == []
    assert [(member.group, member.subscriber) for member in both.members] == [("desks", "london"), ("venues", "rooms")]
    assert [member.subscriber for member in one.members] == ["rooms"]
    for shown in (none, one):
        ConsoleOutput().show(shown)
    said = capsys.readouterr().out
    assert "nobody is enrolled in a standing group" in said
    assert "venues rooms" in " ".join(said.split())
    assert "nobody" in said.splitlines()[-1], "it is not heard"
    with pytest.raises(TuttiError, match="nobody is enrolled in the group 'empty'"):
        await show_groups(session, "empty")


async def test_a_member_is_taken_out_with_its_keys(session: MemorySession, site: Site) -> None:
    await enrolled(session, "venues", "rooms", "rooms-0")
    await site.log.enrol(Secret("venues", "rooms", "p", b"s", b"w"))
    with pytest.raises(TuttiError, match="hotel is not in the group 'venues'") as raised:
        await remove_member(session, "venues", "hotel", "", force=False)
    assert raised.value.hint == "in it are rooms"
    await remove_member(session, "venues", "rooms", "", force=False)
    assert session.answers.shown[-1].forgotten
    assert await site.log.enrolment("venues", "rooms") is None
    await show_groups(session, "")
    assert session.answers.shown[-1].members == []


async def test_a_member_that_lives_is_not_taken_out_by_mistake(
    session: MemorySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enrolled(session, "venues", "rooms", "rooms-0")

    async def heard(_: object) -> frozenset[str]:
        return frozenset({"rooms-0"})

    monkeypatch.setattr(standing_groups, "heard_instances", heard)
    with pytest.raises(TuttiError, match="rooms-0 acts for rooms") as raised:
        await remove_member(session, "venues", "rooms", "", force=False)
    assert "--force" in raised.value.hint
    await remove_member(session, "venues", "rooms", "", force=True)


def test_a_list_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    member = standing_groups.GroupMember("venues", "rooms", "Meeting", ("A", "B"), True, "rooms-0", True, 100.0)
    ConsoleOutput().show(GroupList([member], 160.0))
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["group", "member", "transactions"]
    assert row.split() == ["venues", "rooms", "Meeting", "A,", "B", "yes", "60", "s", "ago", "rooms-0"]

"""The operator's commands: `tutti tx …` and `tutti group …`. What they do is in modules of its own."""

# ruff: noqa: PLC0415  what a command needs is loaded when it runs: `tutti --help` is quick

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from tutti.cli.operating_options import Id, JournalOption, ResourcesOption, SubscriberOption
from tutti.cli.options import Session, command

_SETTINGS: Final[dict[str, Any]] = {"no_args_is_help": True, "rich_markup_mode": "rich"}

tx: Final = typer.Typer(
    help="Transactions: what is under way, who is waited for, and what to do about it.", **_SETTINGS
)
group: Final = typer.Typer(help="Standing groups: who is enrolled.", **_SETTINGS)


@command(tx, "ls")
async def list_transactions(
    session: Session,
    *,
    every: Annotated[bool, typer.Option("--all", help="also those that are over")] = False,
    state: Annotated[
        str, typer.Option(help="only these: active, overdue, orphaned, in-doubt, committing, aborting, compensating, …")
    ] = "",
    journal: JournalOption = "",
) -> None:
    """Open transactions: state, age, how many members have ended, who is waited for.

    A transaction stays here until everybody has ended and what was finished by hand is forgotten. The journal alone
    answers: no server is needed.

    [dim]$[/] tutti tx ls
    [dim]$[/] tutti tx ls --state in-doubt --json
    [dim]$[/] tutti tx ls --all --journal postgresql://db/journal
    """
    from tutti.cli.transactions import show_transactions

    await show_transactions(session, journal, state, every=every)


@command(tx, "show")
async def show_one_transaction(session: Session, tx: Id, journal: JournalOption = "") -> None:
    """One transaction: record, decision, members, participants of this host, events, statuses, as a timeline.

    [dim]$[/] tutti tx show 3f9a-77c1-12
    """
    from tutti.cli.timelines import show_transaction

    await show_transaction(session, journal, tx)


@command(tx, "watch")
async def watch(session: Session, journal: JournalOption = "") -> None:
    """Open transactions, live, until Ctrl-C. With --json a line for each change.

    [dim]$[/] tutti tx watch
    [dim]$[/] tutti tx watch --json | jq -r '.transaction.state'
    """
    from tutti.cli.transactions import watch_transactions

    await watch_transactions(session, journal)


@command(tx, "abort")
async def abort(
    session: Session,
    *,
    tx: Id,
    reason: Annotated[str, typer.Option(help="for the record, and for the publisher", metavar="TEXT")] = "",
    journal: JournalOption = "",
    resources: ResourcesOption = None,
) -> None:
    """Abort a transaction that is not decided yet, everywhere and at once.

    The row in the journal decides, even while its manager lives; then members and manager are told. Needs the journal,
    and its key to tell them.

    [dim]$[/] tutti tx abort 3f9a-77c1-12 --reason "its publisher hangs"
    """
    from tutti.cli.remedies import abort_transaction

    await abort_transaction(session, tx, journal, reason, resources or [])


@command(tx, "resolve")
async def resolve(
    session: Session,
    *,
    tx: Id,
    outcome: Annotated[str, typer.Argument(metavar="commit|rollback", help="how", show_default=False)],
    subscriber: SubscriberOption = "",
    journal: JournalOption = "",
    resources: ResourcesOption = None,
) -> int | None:
    """Finish branches in doubt by hand: without the decision, and perhaps against it.

    For participants of this host that voted yes, and for the publisher's own branches in databases named by
    --resources. A participant that runs does it itself; for one that does not, name its databases. It is shown until
    `tutti tx forget`, and if the decision turns out to be the other one, that is said. Exit code 1 if something is
    still to be done.

    [dim]$[/] tutti tx resolve 3f9a-77c1-12 rollback
    [dim]$[/] tutti tx resolve 3f9a-77c1-12 commit --subscriber rooms --resources rooms:calendar
    [dim]$[/] tutti tx resolve 3f9a-77c1-12 rollback --resources calendar=postgresql://db/rooms
    """
    from tutti.cli.remedies import resolve_transaction

    return await resolve_transaction(session, tx, outcome, journal, subscriber=subscriber, resources=resources or [])


@command(tx, "forget")
async def forget(
    session: Session,
    *,
    tx: Id,
    force: Annotated[
        bool, typer.Option("--force", help="even if the decision is not known, and never will be")
    ] = False,
    journal: JournalOption = "",
) -> None:
    """Do not show any longer that branches were finished by hand.

    [dim]$[/] tutti tx forget 3f9a-77c1-12
    """
    from tutti.cli.remedies import forget_transaction

    await forget_transaction(session, tx, journal, force=force)


@command(tx, "retry")
async def retry(session: Session, *, tx: Id, subscriber: SubscriberOption = "", journal: JournalOption = "") -> None:
    """Have compensations tried again that were given up, once the reason is gone.

    [dim]$[/] tutti tx retry 3f9a-77c1-12
    [dim]$[/] tutti tx retry 3f9a-77c1-12 --subscriber tickets
    """
    from tutti.cli.remedies import retry_transaction

    await retry_transaction(session, tx, journal, subscriber)


@command(group, "ls")
async def list_groups(
    session: Session, group: Annotated[str, typer.Argument(help="only this one", show_default=False)] = ""
) -> None:
    """Members of standing groups, and which instance acts for each.

    [dim]$[/] tutti group ls
    [dim]$[/] tutti group ls desks --json
    """
    from tutti.cli.standing_groups import show_groups

    await show_groups(session, group)


@command(group, "rm")
async def remove_from_group(
    session: Session,
    *,
    group: Annotated[str, typer.Argument(help="its name", show_default=False)],
    subscriber: Annotated[str, typer.Argument(help="the member", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="even while an instance acts for it")] = False,
    journal: JournalOption = "",
) -> None:
    """Take a member out of a standing group: transactions with the group no longer wait for it.

    What it has under way still ends. When it is started again, it enrols again.

    [dim]$[/] tutti group rm desks old-desk
    """
    from tutti.cli.standing_groups import remove_member

    await remove_member(session, group, subscriber, journal, force=force)

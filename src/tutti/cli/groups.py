"""The commands that have commands: `tutti types …`, `tutti dead …`, `tutti queues …`, `tutti subscribers …`."""

# ruff: noqa: PLC0415  what a command needs is loaded when it runs: `tutti --help` is quick

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from tutti.cli.options import Session, command

_SETTINGS: Final[dict[str, Any]] = {"no_args_is_help": True, "rich_markup_mode": "rich"}

types: Final = typer.Typer(help="What is published: the advertised types.", **_SETTINGS)
dead: Final = typer.Typer(help="Dead letters: events that could not be handled.", **_SETTINGS)
queues: Final = typer.Typer(help="Queues: what waits in them.", **_SETTINGS)
subscribers: Final = typer.Typer(help="Durable subscriptions: how far they are, and who serves them.", **_SETTINGS)

_SEQUENCE_MAX: Final = 2**64 - 1  # of a message in a stream
Numbers = Annotated[
    list[int] | None,
    typer.Argument(metavar="[NUMBER…]", help="as `tutti dead ls` shows them", min=0, max=_SEQUENCE_MAX),
]
All = Annotated[bool, typer.Option("--all", help="every letter (of --subscriber, if given)")]
OfSubscriber = Annotated[str, typer.Option("--subscriber", help="only letters of this subscriber", metavar="NAME")]


@command(types, "ls")
async def list_types(session: Session) -> None:
    """Every advertised type.

    [dim]$[/] tutti types ls
    """
    from tutti.cli.catalogue import show_types

    await show_types(session)


@command(types, "show")
async def show_one_type(session: Session, type: Annotated[str, typer.Argument(help="its name")]) -> None:  # noqa: A002  CloudEvents' word
    """One type: its fields, its routing attributes, how it is delivered.

    [dim]$[/] tutti types show TradeDone
    """
    from tutti.cli.catalogue import show_type

    await show_type(session, type)


@command(types, "advertise")
async def advertise_types(
    session: Session,
    places: Annotated[list[str], typer.Argument(metavar="MODULE:TYPE…", help="where the types are declared")],
) -> None:
    """Advertise types, as `await bus.advertise(…)` does. Modules are looked for in the current folder first.

    [dim]$[/] tutti types advertise desk:TradeDone desk:OrderPlaced
    """
    from tutti.cli.catalogue import advertise

    await advertise(session, places)


@command(types, "asyncapi")
async def write_asyncapi(
    session: Session,
    out: Annotated[str, typer.Option(help="write to this file instead", metavar="FILE")] = "",
    title: Annotated[str, typer.Option(help="of the document")] = "Events",
) -> None:
    """An AsyncAPI 3.0 document of every advertised type.

    [dim]$[/] tutti types asyncapi --out events.asyncapi.json
    """
    from tutti.cli.catalogue import document_types

    await document_types(session, out, title)


@command(dead, "ls")
async def list_letters(session: Session, subscriber: OfSubscriber = "") -> None:
    """The dead letters, oldest first.

    [dim]$[/] tutti dead ls --subscriber desk
    """
    from tutti.cli.letters import show_letters

    await show_letters(session, subscriber)


@command(dead, "show")
async def show_letter(
    session: Session,
    number: Annotated[int, typer.Argument(help="as `tutti dead ls` shows it", min=0, max=_SEQUENCE_MAX)],
) -> None:
    """One dead letter: the event, the reason, the traceback.

    [dim]$[/] tutti dead show 17
    """
    from tutti.cli.letters import show_one_letter

    await show_one_letter(session, number)


@command(dead, "replay")
async def replay_letters(
    session: Session,
    *,
    numbers: Numbers = None,
    every: All = False,
    subscriber: OfSubscriber = "",
) -> int | None:
    """Hand events to their subscription again, and to no other.

    If the handler fails again, a new letter is written.

    [dim]$[/] tutti dead replay 17 18
    [dim]$[/] tutti dead replay --all --subscriber desk
    """
    from tutti.cli.letters import settle_letters

    return await settle_letters(session, "replayed", numbers or [], every=every, subscriber=subscriber)


@command(dead, "drop")
async def drop_letters(
    session: Session,
    *,
    numbers: Numbers = None,
    every: All = False,
    subscriber: OfSubscriber = "",
) -> int | None:
    """Forget dead letters for good.

    [dim]$[/] tutti dead drop 17
    """
    from tutti.cli.letters import settle_letters

    return await settle_letters(session, "dropped", numbers or [], every=every, subscriber=subscriber)


@command(queues, "ls")
async def list_queues(session: Session) -> None:
    """Queues in which something waits: how much, and for how long. Looking takes nothing.

    [dim]$[/] tutti queues ls
    """
    from tutti.cli.queues import show_queues

    await show_queues(session)


@command(subscribers, "ls")
async def list_subscribers(
    session: Session,
    *,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="the instances by name")] = False,
) -> None:
    """Durable subscriptions with their positions, what they have still to read, and who owns their partitions.

    [dim]$[/] tutti subscribers ls --verbose
    """
    from tutti.cli.subscriptions import show_subscriptions

    await show_subscriptions(session, verbose=verbose)


@command(subscribers, "drop")
async def drop_subscriber(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(help="the subscriber's name")],
    force: Annotated[bool, typer.Option("--force", help="even while an instance of it lives")] = False,
) -> None:
    """Forget a subscriber: registrations, positions and leases. Retention no longer waits for it.

    When it starts again, it starts anew.

    [dim]$[/] tutti subscribers drop old-desk
    """
    from tutti.cli.subscriptions import drop

    await drop(session, name, force=force)

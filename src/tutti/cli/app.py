"""The command line: names, options and help texts. What a command does is in a module of its own."""

# ruff: noqa: PLC0415  what a command needs is loaded when it runs: `tutti --help` is quick

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from tutti.cli import INTERRUPTED
from tutti.cli.groups import dead, queues, subscribers, types
from tutti.cli.operating import group, tx
from tutti.cli.operating_options import JournalOption, ResourcesOption
from tutti.cli.options import Session, command, let_go_of_stdout
from tutti.cli.output import Problem, output_for
from tutti.limits import STOP_GRACE_SECONDS

USAGE: Final = 2  # the exit code of a command that was called wrongly

# The root of click's errors. Newer versions of typer carry their own click, so it has no name that always holds.
_CalledWrongly: Final[Any] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")

app: Final = typer.Typer(
    name="tutti",
    help="Typed, content-based publish/subscribe: embedded, or on a NATS cluster.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(types, name="types")
app.add_typer(dead, name="dead")
app.add_typer(queues, name="queues")
app.add_typer(subscribers, name="subscribers")
app.add_typer(tx, name="tx")
app.add_typer(group, name="group")


def start(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(given, standalone_mode=False, prog_name="tutti")
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:  # of the help; commands see to their own
        let_go_of_stdout()
        output_for(json="--json" in given).fail(Problem(f"the output cannot be written: {error.strerror}"))
        return 1
    except _CalledWrongly as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # `tutti` alone: the help
        else:
            path = error.ctx.command_path if getattr(error, "ctx", None) else "tutti"
            output_for(json="--json" in given).fail(Problem(error.format_message(), f"see `{path} --help`", "Usage"))
        return USAGE
    return code if isinstance(code, int) else 0


@command(app, "up")
async def up(
    session: Session,
    *,
    journal: Annotated[
        str | None,
        typer.Option(help="where transactions are decided: a folder, or postgresql://… ($TUTTI_JOURNAL)"),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            "--resource", metavar="MODULE:RESOURCE", help="a database that can be finished here for dead publishers"
        ),
    ] = None,
) -> int | None:
    """Keep the embedded server running until Ctrl-C, and manage transactions.

    Every program that names the same data folder shares one server; it ends with the last of them. This one stays.
    Publishers that connect with manager="service" have their transactions managed here; what managers elsewhere left
    behind is finished. With --url it keeps no server and does only that.

    [dim]$[/] tutti up
    [dim]$[/] tutti up --data /var/lib/trading --resource shop.databases:orders --json
    """
    from tutti.cli.serving import keep_up

    return await keep_up(session, journal=journal, resources=tuple(resources or ()))


@command(app, "run")
async def run(
    session: Session,
    *,
    places: Annotated[list[str], typer.Argument(metavar="MODULE:SUBSCRIBER…", help="where the subscribers are")],
    name: Annotated[str, typer.Option(help="the name under which handlers publish")] = "",
    grace: Annotated[
        float, typer.Option(help="seconds that handlers have to finish at the end", min=0)
    ] = STOP_GRACE_SECONDS,
    metrics_port: Annotated[
        int | None, typer.Option(help="serve /metrics and /health on 127.0.0.1 (0: any free port)", min=0, max=65535)
    ] = None,
    log: Annotated[str, typer.Option(help="text or json", metavar="FORM")] = "text",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error", metavar="LEVEL")] = "info",
) -> int | None:
    """Serve subscribers until Ctrl-C or SIGTERM.

    Then what runs is finished and the rest handed back; a second signal ends at once. Modules are looked for in the
    current folder first.

    [dim]$[/] tutti run desk:desk
    [dim]$[/] tutti run desk:desk audit.trail:keeper --metrics-port 9090 --log json
    """
    from tutti.cli.serving import RunSettings, serve

    settings = RunSettings(
        places=tuple(places), name=name, grace=grace, metrics_port=metrics_port, log=log, log_level=log_level
    )
    return await serve(session, settings)


@command(app, "publish")
async def publish(
    session: Session,
    *,
    type: Annotated[str, typer.Argument(help="an advertised type", show_default=False)],  # noqa: A002  CloudEvents' word
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JSON | FIELD=VALUE… | -]", help="- reads one JSON object a line from stdin"),
    ] = None,
    name: Annotated[str, typer.Option("--as", help="the publisher's name; its events stay in order")] = "",
    id: Annotated[  # noqa: A002  CloudEvents' word
        str | None, typer.Option(help="the event's id: publishing it again is harmless", metavar="ID")
    ] = None,
    lifetime: Annotated[float | None, typer.Option(help="seconds; later it is not handled", metavar="SECONDS")] = None,
    priority: Annotated[int | None, typer.Option(help="0 to 9", min=0, max=9)] = None,
    grade: Annotated[str, typer.Option(help="at_least_once or best_effort", metavar="GRADE")] = "",
) -> int | None:
    """Publish events of an advertised type.

    They are checked against the type as its publisher declared it, and stored just as the publisher's own.

    [dim]$[/] tutti publish TradeDone '{"symbol": "IBM", "price": "128.50"}'
    [dim]$[/] tutti publish TradeDone symbol=IBM price=128.50 tags:='["late"]'
    [dim]$[/] cat trades.jsonl | tutti publish TradeDone - --as replay
    """
    from tutti.cli.publishing import PublishSettings, publish_events

    settings = PublishSettings(type=type, name=name, id=id, lifetime=lifetime, priority=priority, grade=grade or None)
    return await publish_events(session, settings, values or [])


@command(app, "tail")
async def tail(
    session: Session,
    type: Annotated[str, typer.Argument(help="only events of this type", show_default=False)] = "",  # noqa: A002  CloudEvents' word
    where: Annotated[str, typer.Option(help="a CESQL filter", metavar="FILTER")] = "",
    start: Annotated[
        str, typer.Option("--from", help="latest, earliest, a time, an age such as 5m, or a sequence", metavar="PLACE")
    ] = "latest",
    count: Annotated[int | None, typer.Option(help="end after so many events", min=1)] = None,
) -> int | None:
    """Show events as they come. Reads only: it holds nothing back, and nobody notices.

    [dim]$[/] tutti tail
    [dim]$[/] tutti tail TradeDone --where "symbol = 'IBM' AND price > 100"
    [dim]$[/] tutti tail --from 15m --count 100 --json
    """
    from tutti.cli.tailing import TailSettings, tail_events

    return await tail_events(session, TailSettings(type=type, where=where, start=start, count=count))


@command(app, "doctor")
async def doctor(
    session: Session,
    *,
    forget: Annotated[str | None, typer.Option(help="remove this record, which cannot be read", metavar="KEY")] = None,
    journal: JournalOption = "",
    resources: ResourcesOption = None,
) -> int | None:
    """Look at servers, streams, subscriptions, transactions and leftovers, and say what to do. Exit code 1 if there is
    a problem.

    [dim]$[/] tutti doctor
    [dim]$[/] tutti doctor --resources rooms:calendar --resources postgresql://db/books
    [dim]$[/] tutti doctor --forget type.TradeDone
    [dim]$[/] tutti doctor --url nats://10.0.0.7:4222 --json
    """
    if forget is not None:
        from tutti.cli.records import forget as forget_record

        await forget_record(session, forget)
        return None
    from tutti.cli.doctor import examine

    return await examine(session, journal, resources or [])


@command(app, "version")
async def version(session: Session) -> None:
    """Versions of Tutti, Python and the embedded server."""
    from tutti.cli.versions import installed

    session.output.show(installed())

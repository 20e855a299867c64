"""What every command takes, and how a command is declared and ended.

    @command(app, "tail")
    async def tail(session: Session, type: Annotated[str, typer.Argument()] = "") -> None: ...

The options of `Common` are added to every command's own; the body gets them as a `Session`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
import typing
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec, assert_never

import msgspec
import typer

from tutti.bus.nats import NatsOptions
from tutti.cli import INTERRUPTED
from tutti.cli.output import Output, Problem, Unwritable, output_for
from tutti.errors import DeclarationError, TuttiError
from tutti.resources import Resource
from tutti.runtime.bus import Bus
from tutti.runtime.connect import connect

P = ParamSpec("P")

KEYWORD_ONLY: Final = inspect.Parameter.KEYWORD_ONLY
_WHERE: Final = "Where the bus is"
_WHO: Final = "Who we are to the servers"


def _option(name: str, text: str, *, panel: str | None = None, metavar: str | None = None) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel, metavar=metavar, show_default=False)


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every command. What is not said is looked up in the environment by `target`."""

    url: Annotated[
        str | None, _option("--url", "nats:// or tls://, several with commas ($TUTTI_URL)", panel=_WHERE, metavar="URL")
    ] = None
    data: Annotated[
        str | None, _option("--data", "folder of the embedded server ($TUTTI_DATA)", panel=_WHERE, metavar="FOLDER")
    ] = None
    namespace: Annotated[
        str | None,
        _option("--namespace", "several applications on one server ($TUTTI_NAMESPACE)", panel=_WHERE, metavar="NAME"),
    ] = None
    creds: Annotated[str | None, _option("--creds", "a .creds file ($TUTTI_CREDS)", panel=_WHO, metavar="FILE")] = None
    nkey: Annotated[
        str | None, _option("--nkey", "a file with an NKEY seed ($TUTTI_NKEY)", panel=_WHO, metavar="FILE")
    ] = None
    tls_ca: Annotated[
        str | None, _option("--tls-ca", "who signed the servers' certificates", panel=_WHO, metavar="FILE")
    ] = None
    tls_cert: Annotated[str | None, _option("--tls-cert", "our own certificate", panel=_WHO, metavar="FILE")] = None
    tls_key: Annotated[str | None, _option("--tls-key", "the key of our certificate", panel=_WHO, metavar="FILE")] = (
        None
    )
    tls_hostname: Annotated[
        str | None, _option("--tls-hostname", "the name in the servers' certificates", panel=_WHO, metavar="NAME")
    ] = None
    monitor_url: Annotated[
        str | None,
        _option(
            "--monitor-url",
            "http://host:8222: there it can be seen that the servers sync ($TUTTI_MONITOR_URL)",
            panel=_WHERE,
            metavar="URL",
        ),
    ] = None
    synced: Annotated[
        bool, _option("--synced", "your word that the servers sync every write ($TUTTI_SYNCED)", panel=_WHERE)
    ] = False
    unsafe: Annotated[
        bool, _option("--unsafe", "accept servers that may lose what they acknowledged", panel=_WHERE)
    ] = False
    json: Annotated[bool, _option("--json", "answer in JSON: one object, or one a line")] = False
    debug: Annotated[bool, _option("--debug", "errors with their traceback ($TUTTI_DEBUG)")] = False


_COMMON_TEXTS: Final = tuple(field.name for field in msgspec.structs.fields(Common) if field.default is None)


class InFolder(msgspec.Struct, frozen=True):
    """The embedded server of a data folder."""

    folder: Path


class AtServers(msgspec.Struct, frozen=True):
    """Servers that run already. `options` are those of `tutti.NatsOptions`, by name."""

    urls: tuple[str, ...]
    options: dict[str, Any]

    def nats_options(self, **changes: Any) -> NatsOptions:
        return NatsOptions(urls=self.urls, **(self.options | changes))


Target = InFolder | AtServers


def target(common: Common, environment: typing.Mapping[str, str]) -> Target:
    """Where the bus is. An option beats the environment; a URL beats a folder."""
    if common.url and common.data:
        raise DeclarationError(
            f"both --url {common.url} and --data {common.data} are given",
            hint="name servers that run already, or the folder of an embedded one",
        )
    url = common.url or ("" if common.data else environment.get("TUTTI_URL", ""))
    given = _server_options(common, environment)
    if url:
        urls = tuple(part.strip() for part in url.split(",") if part.strip())
        if not urls:
            raise DeclarationError(f"{url!r} names no server", hint="write nats://host:4222, or unset TUTTI_URL")
        return AtServers(urls, given)
    if given and any(getattr(common, name) for name in _ASKS_FOR_SERVERS):
        raise DeclarationError(
            "credentials are given, but no server", hint="add --url nats://…: the embedded server has its own"
        )
    folder = common.data or environment.get("TUTTI_DATA") or ".tutti"
    return InFolder(Path(folder).expanduser().absolute())


_ASKS_FOR_SERVERS: Final = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key", "tls_hostname", "monitor_url", "synced")


def _server_options(common: Common, environment: typing.Mapping[str, str]) -> dict[str, Any]:
    nkey = common.nkey or environment.get("TUTTI_NKEY", "")
    given: dict[str, Any] = {
        "creds_file": common.creds or environment.get("TUTTI_CREDS", ""),
        "nkey_seed": _seed(nkey) if nkey else "",
        "tls_ca_file": common.tls_ca,
        "tls_cert_file": common.tls_cert,
        "tls_key_file": common.tls_key,
        "tls_hostname": common.tls_hostname,
        "monitor_url": common.monitor_url or environment.get("TUTTI_MONITOR_URL", ""),
        "synced": True if common.synced or environment.get("TUTTI_SYNCED") else None,
    }
    chosen = {name: value for name, value in given.items() if value}
    return chosen | ({"durable": False} if common.unsafe else {})


def _seed(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise DeclarationError(
            f"the NKEY file {path} cannot be read: {error}", hint="it holds one seed, SU…"
        ) from error


class Session:
    """One run of a command: what it was told, and where its answers go."""

    def __init__(self, common: Common, output: Output) -> None:
        self.common = common
        self.output = output

    @property
    def target(self) -> Target:
        return target(self.common, os.environ)

    @property
    def namespace(self) -> str:
        return self.common.namespace or os.environ.get("TUTTI_NAMESPACE") or "tutti"

    def bus(
        self,
        *,
        name: str = "",
        create: bool = True,
        journal: str | None = None,
        resources: Sequence[Resource[Any]] = (),
        **server_options: Any,
    ) -> Bus:
        """The bus, not yet open. Without `create`, a folder in which there never was a server is an error: a command
        that only looks was probably called in the wrong place."""
        match self.target:
            case AtServers() as servers:
                options = servers.nats_options(**server_options)
                return connect(
                    options=options, name=name, namespace=self.namespace, journal=journal, resources=resources
                )
            case InFolder(folder):
                if not create and not (folder / "server").exists():
                    raise TuttiError(
                        f"there is no bus in {folder}",
                        hint="name its folder with --data or TUTTI_DATA, or servers with --url; `tutti up` starts one",
                    )
                return connect(
                    url="", data=folder, name=name, namespace=self.namespace, journal=journal, resources=resources
                )
            case unknown:
                assert_never(unknown)


Body = Callable[Concatenate[Session, P], Coroutine[Any, Any, int | None]]


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[[Body[P]], Body[P]]:
    """Declare a command: its own options, and the common ones behind them."""

    def declare(body: Body[P]) -> Body[P]:
        own = list(_parameters(body).values())[1:]  # the first is the session

        def entry(**given: Any) -> None:
            _refuse_blank(given)
            common = Common(**{field: given.pop(field) for field in Common.__struct_fields__})
            raise typer.Exit(perform(common, lambda session: body(session, **given)))  # type: ignore[call-arg]  # typer calls by name

        parameters = [*own, *_common_parameters()]
        entry.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        entry.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        entry.__doc__ = body.__doc__
        app.command(name, **settings)(entry)
        return body

    return declare


def _refuse_blank(given: dict[str, Any]) -> None:
    """A name that is empty was probably a variable that is not set; the default in its place would surprise."""
    for name in (*_COMMON_TEXTS, "id"):
        value = given.get(name)
        if value is not None and not value.strip():
            raise typer.BadParameter("it is empty", param_hint=f"--{name.replace('_', '-')}")


def _parameters(body: Callable[..., object]) -> dict[str, inspect.Parameter]:
    hints = typing.get_type_hints(body, include_extras=True)
    found = inspect.signature(body).parameters
    return {name: parameter.replace(annotation=hints[name]) for name, parameter in found.items()}


def _common_parameters() -> list[inspect.Parameter]:
    hints = typing.get_type_hints(Common, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in msgspec.structs.fields(Common)
    ]


def perform(common: Common, work: Callable[[Session], Coroutine[Any, Any, int | None]]) -> int:
    """Run a command's body to its end, whatever that is; returns the exit code."""
    output = output_for(json=common.json)
    try:
        return asyncio.run(work(Session(common, output))) or 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        let_go_of_stdout()
        return 1
    except Exception as error:  # noqa: BLE001  the last place where somebody can say something helpful
        if common.debug or os.environ.get("TUTTI_DEBUG"):
            traceback.print_exc()
        if isinstance(error, Unwritable):
            let_go_of_stdout()
        output.fail(problem_of(error))
        return 1


def problem_of(error: Exception) -> Problem:
    kind = type(error).__name__
    if isinstance(error, TuttiError):
        return Problem(error.what, error.hint, kind)
    return Problem(
        f"unexpected {kind}: {error}", "this is a bug in Tutti: run it again with --debug, and please report it", kind
    )


def let_go_of_stdout() -> None:
    """Nobody reads our answers any more (`tutti tail | head`), or they cannot be written: there is nothing to flush at
    the end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)

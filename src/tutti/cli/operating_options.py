"""The options that the operator's commands share, as `operating` declares them."""

from __future__ import annotations

from typing import Annotated

import typer

JournalOption = Annotated[
    str,
    typer.Option(
        "--journal",
        help="a folder, or postgresql://… ($TUTTI_JOURNAL, or the data folder)",
        metavar="PLACE",
        show_default=False,
    ),
]
ResourcesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--resources",
        "--resource",
        help="a database to look into: module:name of a resource, or [name=]postgresql://…; may be repeated",
        metavar="PLACE",
        show_default=False,
    ),
]
SubscriberOption = Annotated[str, typer.Option("--subscriber", help="only this participant", metavar="NAME")]
Id = Annotated[str, typer.Argument(metavar="ID", help="as `tutti tx ls` shows it", show_default=False)]

"""`tutti types`: what is advertised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tutti.cli.loading import load_type
from tutti.cli.options import AtServers, Session
from tutti.cli.output import counted
from tutti.errors import TuttiError
from tutti.model.advertisement import Advertisement
from tutti.model.asyncapi import asyncapi
from tutti.model.event import event_type
from tutti.model.txtype import TxAdvertisement


class TypeList(msgspec.Struct, frozen=True):
    types: list[Advertisement]
    transactions: list[TxAdvertisement] = []

    def __rich__(self) -> RenderableType:
        if not self.types and not self.transactions:
            return "no type is advertised yet: `tutti types advertise desk:TradeDone` does that"
        table = Table("type", "version", "stream", "grade", "routing", "key", "fields", box=None, pad_edge=False)
        for known in self.types:
            routing = ", ".join(attribute.name for attribute in known.routing)
            cells = (known.type, known.version, known.stream, known.grade, routing, known.key or "")
            table.add_row(*(Text(str(cell)) for cell in cells), Text(", ".join(fields(known.schema))))
        if not self.transactions:
            return table
        below = Table("transaction", "version", "events", "fields", box=None, pad_edge=False)
        for one in self.transactions:
            texts = (one.type, str(one.version), ", ".join(one.events), ", ".join(fields(one.schema)))
            below.add_row(*map(Text, texts))
        return Group(table, Text(), below)


class TypeDetails(msgspec.Struct, frozen=True):
    """One type, as it is advertised."""

    advertisement: Advertisement

    def as_json(self) -> Advertisement:
        return self.advertisement

    def __rich__(self) -> RenderableType:
        known = self.advertisement
        table = Table("field", "kind", "required", "", box=None, pad_edge=False)
        routed = {attribute.name for attribute in known.routing}
        for name, (kind, required) in fields(known.schema).items():
            remarks = [word for word, true in (("routing", name in routed), ("key", name == known.key)) if true]
            table.add_row(Text(name), Text(kind), "yes" if required else "no", ", ".join(remarks))
        title = Text(f"{known.type} version {known.version}", style="bold")
        return Group(title, Text(description(known.schema)), table, Text(_delivery(known)))


class TransactionDetails(msgspec.Struct, frozen=True):
    """One transaction type, as it is advertised."""

    advertisement: TxAdvertisement

    def as_json(self) -> TxAdvertisement:
        return self.advertisement

    def __rich__(self) -> RenderableType:
        known = self.advertisement
        table = Table("field", "kind", "required", box=None, pad_edge=False)
        for name, (kind, required) in fields(known.schema).items():
            table.add_row(Text(name), Text(kind), "yes" if required else "no")
        title = Text(f"{known.type} version {known.version}, a transaction type", style="bold")
        events = Text(f"may publish {', '.join(known.events) or 'nothing'}")
        return Group(title, Text(description(known.schema)), table, events)


def _delivery(known: Advertisement) -> str:
    words = [f"stream {known.stream}", known.grade.replace("_", " ")]
    words += [f"lifetime {known.lifetime:g} s"] if known.lifetime is not None else []
    words += [f"priority {known.priority}"] if known.priority else []
    words += [counted(len(known.earlier), "earlier version")] if known.earlier else []
    return ", ".join(words)


def fields(schema: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """The fields of a type: what they are in words, and whether they must be given."""
    top = _resolved(schema, schema)
    required = top.get("required", ())
    return {name: (words(part), name in required) for name, part in top.get("properties", {}).items()}


def description(schema: dict[str, Any]) -> str:
    return str(_resolved(schema, schema).get("description", ""))


def words(schema: dict[str, Any]) -> str:
    """What values a schema lets pass, in a few words."""
    match schema:
        case {"$ref": str(reference)}:
            return reference.removeprefix("#/$defs/")
        case {"anyOf": list(members)}:
            return " | ".join(words(member) for member in members)
        case {"enum": list(values)}:
            return " | ".join(str(value) for value in values)
        case {"type": "array", "prefixItems": list(items)}:
            return f"[{', '.join(words(item) for item in items)}]"
        case {"type": "array"}:
            return f"list of {words(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"map to {words(values)}"
        case {"format": str(name)}:
            return name
        case {"contentEncoding": str(name)}:
            return name
        case {"type": str(name)}:
            return name
        case _:
            return "anything"


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    found: dict[str, Any] = whole["$defs"][reference.removeprefix("#/$defs/")] if reference else schema
    return found


async def show_types(session: Session) -> None:
    async with session.bus(create=False) as bus:
        session.output.show(TypeList(await bus.types(), await bus.context.catalogue.transaction_types()))


async def show_type(session: Session, name: str) -> None:
    async with session.bus(create=False) as bus:
        transactions = {one.type: one for one in await bus.context.catalogue.transaction_types()}
        if name in transactions:
            session.output.show(TransactionDetails(transactions[name]))
        else:
            session.output.show(TypeDetails(await bus.describe(name)))


class Advertised(msgspec.Struct, frozen=True):
    types: list[str]

    def __rich__(self) -> RenderableType:
        return f"advertised {', '.join(self.types)}"


async def advertise(session: Session, places: list[str]) -> None:
    """Every class is found before the first is advertised."""
    classes = [load_type(place) for place in places]
    async with session.bus() as bus:
        await bus.advertise(*classes)
    session.output.show(Advertised([event_type(cls).name for cls in classes]))


class Document(msgspec.Struct, frozen=True):
    """An AsyncAPI document: JSON for everybody, on several lines for people."""

    document: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return self.document

    def __rich__(self) -> RenderableType:
        return Text(self.text())

    def text(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self.document), indent=2).decode()


class Written(msgspec.Struct, frozen=True):
    file: str
    types: int

    def __rich__(self) -> RenderableType:
        return f"{self.file}: {counted(self.types, 'type')}"


async def document_types(session: Session, out: str, title: str) -> None:
    async with session.bus(create=False) as bus:
        known = await bus.types()
        target = session.target
        servers = {f"server{i}": url for i, url in enumerate(target.urls, 1)} if isinstance(target, AtServers) else None
        document = Document(asyncapi(known, title=title, servers=servers, layout=bus.context.layout))
    if not out:
        session.output.show(document)
        return
    _write(Path(out), document.text() + "\n")
    session.output.show(Written(out, len(known)))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise TuttiError(f"{path} cannot be written: {error.strerror}", hint="name another file with --out") from error

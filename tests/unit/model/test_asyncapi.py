"""The AsyncAPI document: its structure, checked reference by reference."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from tutti.errors import DeclarationError
from tutti.model.advertisement import Advertisement, advertise
from tutti.model.asyncapi import asyncapi
from tutti.model.event import Event, event_type, key, routing
from tutti.model.subjects import Layout


class Side(enum.Enum):
    BUY = "buy"


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    friends: list[Cat | Dog] = []


class Trade(Event, stream="trades"):
    symbol: Annotated[str, routing, key]
    price: Decimal
    side: Annotated[Side | None, routing] = None
    pet: Cat | Dog | None = None
    pair: tuple[int, str] = (1, "one")
    extra: dict[str, list[int]] = msgspec.field(default_factory=dict)


class Tick(Event, grade="best_effort", type="com.example/tick"):
    pet: Cat


@pytest.fixture
def document() -> dict[str, Any]:
    known = [advertise(event_type(cls)) for cls in (Trade, Tick)]
    made = asyncapi(known, title="Desk", servers={"main": "nats://user:secret@[::1]:4222"}, layout=Layout("shop"))
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]  # JSON is untyped


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for part in node.values():
            yield from references(part)
    elif isinstance(node, list):
        for part in node:
            yield from references(part)


def keywords(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, part in node.items():
            yield name
            yield from keywords(part)
    elif isinstance(node, list):
        for part in node:
            yield from keywords(part)


def test_the_outside(document: dict[str, Any]) -> None:
    assert document["asyncapi"] == "3.0.0"
    assert document["info"] == {"title": "Desk", "version": "1.0.0"}
    assert set(document) == {
        "asyncapi",
        "info",
        "defaultContentType",
        "servers",
        "channels",
        "operations",
        "components",
    }
    assert document["servers"] == {"main": {"host": "[::1]:4222", "protocol": "nats"}}
    assert "secret" not in json.dumps(document)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = list(references(document))
    assert len(found) > 15
    for reference in found:
        node = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


def test_names_are_allowed(document: dict[str, Any]) -> None:
    groups = [document["channels"], document["operations"], *document["components"].values()]
    for name in (name for group in groups for name in group):
        assert re.fullmatch(r"[\w.-]+", name, re.ASCII), name


def test_channels_are_our_subjects(document: dict[str, Any]) -> None:
    trade = document["channels"]["Trade"]
    assert trade["address"] == "shop.event.trades.Trade._.{partition-number}.{symbol}.{side}"
    assert set(trade["parameters"]) == set(re.findall(r"{([^}]+)}", trade["address"]))
    assert trade["parameters"]["symbol"]["location"] == "$message.payload#/symbol"
    assert len(trade["parameters"]["partition-number"]["enum"]) == 16
    tick = document["channels"]["com_2Eexample_2Ftick"]
    assert tick["address"] == "shop.live.com=2Eexample=2Ftick._.{partition-number}"
    assert tick["title"] == "com.example/tick"


def test_operations(document: dict[str, Any]) -> None:
    assert document["operations"]["publish.Trade"]["action"] == "send"
    assert document["operations"]["handle.Trade"]["action"] == "receive"
    assert document["operations"]["handle.Trade"]["channel"] == {"$ref": "#/channels/Trade"}


def test_messages_are_cloudevents(document: dict[str, Any]) -> None:
    message = document["components"]["messages"]["Trade"]
    assert message["name"] == "Trade"
    assert message["contentType"] == "application/json"
    assert message["x-tutti"]["key"] == "symbol"
    headers = document["components"]["messageTraits"]["cloudEvent"]["headers"]
    assert headers["required"] == ["ce-specversion", "ce-id", "ce-source", "ce-type"]
    assert {"ce-time", "ce-sequence", "ce-expirytime", "ce-traceparent"} <= set(headers["properties"])


def test_schemas_are_in_asyncapis_dialect(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert not {"$defs", "prefixItems"} & set(keywords(schemas))
    trade = schemas["Trade"]["properties"]
    assert trade["pair"]["items"] == [{"type": "integer"}, {"type": "string"}]
    assert trade["pair"]["additionalItems"] is False
    assert trade["pair"]["default"] == [1, "one"]
    assert schemas["Trade.Dog"]["properties"]["friends"]["items"]["discriminator"] == "type"


def test_parts_of_different_types_do_not_mix(document: dict[str, Any]) -> None:
    assert {"Trade.Cat", "com_2Eexample_2Ftick.Cat"} <= set(document["components"]["schemas"])


def test_nothing_advertised() -> None:
    document = asyncapi([], title="Empty", description="Nothing yet.")
    assert document["channels"] == {}
    assert document["info"]["description"] == "Nothing yet."
    assert "servers" not in document


@pytest.mark.parametrize("url", ["host:4222", "nats://", "", "/path"])
def test_servers_need_an_address(url: str) -> None:
    with pytest.raises(DeclarationError, match="no address of a server"):
        asyncapi([], title="T", servers={"main": url})


def test_a_field_may_be_called_like_a_keyword() -> None:
    odd = Advertisement("Odd", 1, msgspec.json.schema(msgspec.defstruct("Odd", [("items", str), ("prefixItems", int)])))
    properties = asyncapi([odd], title="T")["components"]["schemas"]["Odd"]["properties"]
    assert properties == {"items": {"type": "string"}, "prefixItems": {"type": "integer"}}

"""How a subscriber takes part in transactions, as it is declared; and what of it cannot work, said at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tutti.errors import DeclarationError
from tutti.filters import Filter
from tutti.model.txtype import TransactionType
from tutti.resources import Resource

if TYPE_CHECKING:
    from tutti.runtime.subscriber import Subscription


class Joining(msgspec.Struct, frozen=True):
    """One declaration: by census, with the callback that decides; or, with `group`, for good.

    `patience`: seconds without news after which it asks the others. `identity`: a name that the publisher is told."""

    type: TransactionType
    decide: Callable[..., Any] | None = None
    filter: Filter | None = None
    compensatable: bool = False
    early_commit: bool = False
    identity: str = ""
    group: str = ""
    vital: bool = True
    patience: float = 5.0

    @property
    def title(self) -> str:
        return f"group {self.group!r}" if self.group else f"transactions of type {self.type.name}"


class Parts(msgspec.Struct, frozen=True):
    """All that a subscriber declares about transactions."""

    subscriber: str
    joinings: tuple[Joining, ...]
    handlers: Mapping[str, tuple[Subscription, ...]]  # event type: its handlers with `tx`, in order
    compensators: Mapping[str, Callable[..., Any]]  # by the handler's name
    resources: Mapping[str, Resource[Any]]

    def handled_in(self, joining: Joining) -> tuple[str, ...]:
        """The event types that it gets in such a transaction."""
        return tuple(name for name in joining.type.event_names if name in self.handlers)


def parts_of(
    subscriber: str,
    joinings: Sequence[Joining],
    subscriptions: Mapping[str, Subscription],
    compensators: Mapping[str, Callable[..., Any]],
    resources: Sequence[Resource[Any]],
    *,
    ephemeral: bool,
) -> Parts:
    """Checked: `DeclarationError` names the handler, and what to write instead."""
    handlers: dict[str, tuple[Subscription, ...]] = {}
    for subscription in subscriptions.values():
        if subscription.takes_tx:
            name = subscription.published.name
            handlers[name] = (*handlers.get(name, ()), subscription)
    parts = Parts(subscriber, tuple(joinings), handlers, compensators, {r.name: r for r in resources})
    if joinings and ephemeral:
        raise DeclarationError(
            f"subscriber {subscriber!r} is ephemeral and takes part in {joinings[0].title}",
            hint="a vote must be remembered: leave ephemeral=True out",
        )
    if len(parts.resources) < len(resources):
        raise DeclarationError(
            f"subscriber {subscriber!r}: two of its resources have one name", hint="give each resource its own"
        )
    _check_handlers(parts)
    for joining in joinings:
        _check_joining(parts, joining)
    return parts


def _check_handlers(parts: Parts) -> None:
    """Every handler with `tx` can run in some transaction."""
    named = {name for joining in parts.joinings for name in joining.type.event_names}
    for name, handlers in parts.handlers.items():
        title = f"handler {handlers[0].name!r} of subscriber {parts.subscriber!r}"
        if not parts.joinings:
            raise DeclarationError(
                f"{title} takes tx, but its subscriber takes part in no transaction",
                hint=f"declare @{parts.subscriber}.join(SomeTxType), or {parts.subscriber}.enrol(group, SomeTxType)",
            )
        if name not in named:
            types = ", ".join(sorted({joining.type.name for joining in parts.joinings}))
            raise DeclarationError(
                f"{title} takes tx, but {name} is not among the events of {types}",
                hint=f"add it to events=[…] of the transaction type, or drop the parameter tx to see {name} on commit",
            )


def _check_joining(parts: Parts, joining: Joining) -> None:
    handled = parts.handled_in(joining)
    if not handled:
        raise DeclarationError(
            f"subscriber {parts.subscriber!r} takes part in {joining.title} without a handler",
            hint=f"declare one with (event, tx) for one of {', '.join(joining.type.event_names) or 'its events'}",
        )
    if joining.early_commit and not joining.compensatable:
        raise DeclarationError(
            f"subscriber {parts.subscriber!r}: early_commit in {joining.title} without compensatable",
            hint="what is committed at each event must be undone on abort: add compensatable=True",
        )
    if not joining.compensatable:
        return
    for name in handled:
        for handler in parts.handlers[name]:
            if handler.name not in parts.compensators:
                raise DeclarationError(
                    f"handler {handler.name!r} of subscriber {parts.subscriber!r} has no compensator, and "
                    f"{joining.title} are joined as compensatable",
                    hint=f"declare one: @{handler.name}.compensate above async def …(event, tx)",
                )

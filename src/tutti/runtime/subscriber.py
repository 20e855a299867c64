"""What a subscriber declares: which events, under which filter, handled how. Nothing here runs anything."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, ParamSpec, TypeVar

import msgspec

from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime, Start
from tutti.errors import DeclarationError
from tutti.filters import Filter, Index, subject_tokens
from tutti.model.event import CloudEvent, EventType, RoutingAttribute, event_type
from tutti.model.mapping import Mapping
from tutti.model.policy import Batch, Policy
from tutti.model.subjects import Layout, checked_name
from tutti.model.txtype import transaction_type
from tutti.resources import Resource
from tutti.runtime.delivery import Delivery
from tutti.runtime.publisher import checked_queue
from tutti.runtime.transactions.joining import Joining, Parts, parts_of

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BATCH: Final = Batch(most=100, wait=1.0)
PATIENCE_SECONDS: Final = 5.0  # a member of a transaction waits so long for news before it asks
TX_PARAMETER: Final = "tx"  # a handler's second parameter of this name is the transaction

StartAt = typing.Literal["latest", "earliest"] | datetime | int


class Handler(Generic[P, R]):
    """A declared handler. Calling it calls the function, so that it can be tested by itself."""

    def __init__(
        self,
        function: Callable[P, R],
        subscription: Subscription,
        compensators: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.function = function
        self.subscription = subscription
        self._compensators = compensators
        self.__doc__ = function.__doc__
        self.__name__ = subscription.name
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def compensate(self, function: F) -> F:
        """Declare what undoes this handler's work, if a transaction aborts after it was committed:

        @reserve.compensate
        async def release(event, tx): …
        """
        where = f"compensator {getattr(function, '__name__', function)!r} of handler {self.subscription.name!r}"
        if self._compensators is None or not self.subscription.takes_tx:
            raise DeclarationError(
                f"{where}: this handler does not run in transactions", hint="let the handler take (event, tx)"
            )
        if self.subscription.name in self._compensators:
            raise DeclarationError(f"{where} is a second one", hint="a handler has one compensator")
        shape = _shape(function, where, self.subscription.type.python)
        if not (shape.takes_tx and shape.is_async):
            raise DeclarationError(f"{where} cannot be called", hint="declare it as async def …(event, tx)")
        self._compensators[self.subscription.name] = function
        return function

    def __repr__(self) -> str:
        return f"<handler {self.subscription.name} of {self.subscription.type.name}>"


class Subscription(msgspec.Struct, frozen=True):
    """One handler's declaration, complete and checked."""

    name: str
    type: EventType  # what the handler takes
    policy: Policy
    start: Start
    function: Callable[..., Any]
    takes_delivery: bool
    takes_list: bool
    is_async: bool
    filter: Filter | None = None
    match: Index[Hashable] | None = None
    via: Mapping | None = None
    key: str | None = None  # the event's field whose values are handled in parallel
    foreign_subject: str | None = None
    foreign_stream: str | None = None
    queue: str | None = None
    takes_tx: bool = False  # runs only in transactions that its subscriber joined

    @property
    def published(self) -> EventType:
        """The type on the bus: another one than the handler's if a mapping stands between."""
        return self.via.source if self.via is not None else self.type

    def subjects(self, layout: Layout, partitions: tuple[int, ...] | None) -> tuple[str, ...]:
        """Where on the log this subscription's events are. `partitions` None: all of them."""
        if self.foreign_subject is not None:
            return (self.foreign_subject,)
        numbers = ("*",) if partitions is None else tuple(str(p) for p in partitions)
        stream, kind = self.published.stream, self.published.token
        return tuple(layout.event(stream, kind, "_", p, tokens) for p in numbers for tokens in self.tokens())

    def live_subjects(self, layout: Layout) -> tuple[str, ...]:
        """Where on the wire its best-effort events are."""
        if self.foreign_subject is not None:
            return (self.foreign_subject,)
        return tuple(layout.live(self.published.token, "_", "*", tokens) for tokens in self.tokens())

    def tokens(self) -> tuple[tuple[str, ...], ...]:
        """The routing tokens that its filter leaves possible; none: it can never match."""
        attributes = tuple(_seen_as(a, self.via) for a in self.published.routing)
        if self.filter is None:
            return (("*",) * len(attributes),)
        return subject_tokens(self.filter.expression, attributes)


class Subscriber:
    """A named reader of events with its handlers. Instances of the same name, in any process, share the work.

    `concurrency` limits how many handlers run at once over all subscriptions of one instance; where they compete, the
    subscription with the higher policy priority goes first. An `ephemeral` subscriber remembers nothing: each instance
    sees every event from its start on, and holds nothing back from retention. `resources` are the databases that its
    handlers enlist in transactions: after a crash they are found here, by name."""

    def __init__(
        self,
        name: str,
        *,
        policy: Policy | None = None,
        concurrency: int | None = None,
        ephemeral: bool = False,
        resources: Sequence[Resource[Any]] = (),
    ) -> None:
        self.name = checked_name(name, "subscriber")
        self.policy = policy or Policy()
        self.ephemeral = ephemeral
        if concurrency is not None and concurrency < 1:
            raise DeclarationError(f"subscriber {name!r}: concurrency is {concurrency}", hint="use 1 or more")
        self.concurrency = concurrency
        self.subscriptions: dict[str, Subscription] = {}
        self.compensators: dict[str, Callable[..., Any]] = {}  # by the handler's name
        self.resources = tuple(resources)
        self.joinings: list[Joining] = []

    def __repr__(self) -> str:
        return f"<Subscriber {self.name}: {', '.join(self.subscriptions) or 'no handlers yet'}>"

    def on(
        self,
        event: type,
        *,
        where: str | None = None,
        match: Index[Hashable] | None = None,
        via: Mapping | None = None,
        key: str | None = None,
        policy: Policy | None = None,
        batch: Batch | None = None,
        start: StartAt = "latest",
        name: str | None = None,
        subject: str | None = None,
        stream: str | None = None,
        queue: str | None = None,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Handle events of a type.

        where    a CESQL filter over the event's fields and attributes
        match    an index of many filters; `delivery.matches` names those that the event passes
        via      a mapping from the published type to `event`, applied before filter and handler
        key      a field: events with different values are handled in parallel, those with the same one in order
        policy   attempts, back-off, lifetime, priority, limits; the subscriber's own if not given
        batch    for a handler that takes a list: at most how many, and how long to wait for them
        start    where a new subscription begins: "latest", "earliest", a moment, a sequence
        name     the subscription's durable name; the function's if not given
        subject  a foreign subject (CloudEvents of other systems); with `stream`, read from that JetStream stream
        queue    take the events from this queue instead: each goes to one taker
        """

        _check_class(self.name, event)

        def declare(function: Callable[P, R]) -> Handler[P, R]:
            if isinstance(function, Handler):  # declared already: one function may have several subscriptions
                function = function.function
            title = name if name is not None else str(getattr(function, "__name__", ""))
            where_it_is = f"handler {title!r} of subscriber {self.name!r}"
            if title in self.subscriptions:
                raise DeclarationError(f"{where_it_is} is declared twice", hint="give one of them another name=…")
            checked_name(title, "handler")
            shape = _shape(function, where_it_is, event)
            kind = event_type(event)
            subscription = Subscription(
                name=title,
                type=kind,
                policy=_batched(policy or self.policy, batch, shape, where_it_is, kind.name),
                start=_start(start),
                function=function,
                takes_delivery=shape.takes_delivery,
                takes_list=shape.takes_list,
                is_async=shape.is_async,
                filter=Filter.parse(where) if where is not None else None,
                match=match,
                via=via,
                key=key,
                foreign_subject=subject,
                foreign_stream=stream,
                queue=checked_queue(queue) if queue is not None else None,
                takes_tx=shape.takes_tx,
            )
            _check(where_it_is, subscription)
            self.subscriptions[title] = subscription
            return Handler(function, subscription, self.compensators)

        return declare

    # Transactions

    def join(
        self,
        transaction: type,
        *,
        where: str | None = None,
        compensatable: bool = False,
        early_commit: bool = False,
        identity: str = "",
        patience: float = PATIENCE_SECONDS,
    ) -> Callable[[F], F]:
        """Take part in transactions of a type, if the function below says so: it gets a `tutti.Invite` and returns
        True, False, or an offer for the publisher to look at.

        where          a CESQL filter over the fields that the census announces
        compensatable  commit when we vote, and undo it if the transaction aborts after all: every handler of the type's
                       events then has a compensator
        early_commit   commit at each event instead
        identity       a name that the publisher is told; without it we are a pseudonym
        patience       seconds without news after which the others are asked
        """

        def declare(function: F) -> F:
            self._take_part(
                Joining(
                    transaction_type(transaction),
                    function,
                    filter=Filter.parse(where) if where is not None else None,
                    compensatable=compensatable,
                    early_commit=early_commit,
                    identity=identity,
                    patience=patience,
                )
            )
            return function

        return declare

    def enrol(
        self,
        group: str,
        transaction: type,
        *,
        compensatable: bool = False,
        early_commit: bool = False,
        vital: bool = True,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Be a member of a standing group, for good: its transactions of this type need no census. Durable from the
        first start on. `vital`: whether our no aborts; the publisher may see it differently."""
        self._take_part(
            Joining(
                transaction_type(transaction),
                compensatable=compensatable,
                early_commit=early_commit,
                group=checked_name(group, "group"),
                vital=vital,
                patience=patience,
            )
        )

    def _take_part(self, new: Joining) -> None:
        if any((known.group, known.type) == (new.group, new.type) for known in self.joinings) or (
            new.group and any(known.group == new.group for known in self.joinings)
        ):
            raise DeclarationError(
                f"subscriber {self.name!r} is told twice to take part in {new.title}",
                hint="one declaration says how it takes part",
            )
        if new.patience <= 0:
            raise DeclarationError(f"subscriber {self.name!r}: patience={new.patience}", hint="give seconds above 0")
        self.joinings.append(new)

    def parts(self) -> Parts:
        """What it declares about transactions, checked."""
        return parts_of(
            self.name,
            self.joinings,
            self.subscriptions,
            self.compensators,
            self.resources,
            ephemeral=self.ephemeral,
        )


class _Shape(msgspec.Struct, frozen=True):
    takes_delivery: bool
    takes_list: bool
    is_async: bool
    takes_tx: bool


def _shape(function: Callable[..., object], where: str, event: type) -> _Shape:
    """How the handler wants to be called: (event), (event, delivery), (events: list, deliveries), (event, tx)."""
    parameters = list(inspect.signature(function).parameters.values())
    names = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not 1 <= len(names) <= 2 or keyword:
        raise DeclarationError(
            f"{where} takes ({', '.join([*names, *keyword])})",
            hint="a handler takes (event), (event, delivery) or (event, tx)",
        )
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # annotations that only a type checker can read tell us nothing here
        hints = {}
    first = hints.get(names[0], _readable(parameters[0].annotation))
    _check_first(where, event, first)
    call = getattr(function, "__call__", function)  # noqa: B004 an object with an async __call__ is a handler too
    return _Shape(
        takes_delivery=len(names) == 2 and names[1] != TX_PARAMETER,
        takes_list=typing.get_origin(first) is list or first is list,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call),
        takes_tx=len(names) == 2 and names[1] == TX_PARAMETER,
    )


def _check_class(subscriber: str, event: object) -> None:
    if not isinstance(event, type):
        raise DeclarationError(
            f"subscriber {subscriber!r} is told to handle {event!r}, which is no class of events",
            hint=f"write @{subscriber}.on(SomeEvent) above the handler",
        )


def _check_first(where: str, event: type, annotation: object) -> None:
    """The first parameter takes the event, or a list of them. What cannot be read is the type checker's affair."""
    taken = typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else annotation
    if taken is Delivery:
        raise DeclarationError(f"{where} takes the delivery first", hint="a handler takes (event, delivery)")
    declared = isinstance(taken, type) and (hasattr(taken, "__struct_fields__") or dataclasses.is_dataclass(taken))
    if isinstance(taken, type) and declared and not issubclass(event, taken):
        raise DeclarationError(
            f"{where} is declared for {event.__name__}, but its first parameter is a {taken.__name__}",
            hint=f"declare on({taken.__name__}), or annotate it as {event.__name__}",
        )


def _readable(annotation: object) -> object:
    """An annotation that names a class out of reach, one of a function's own, still says whether it is a list."""
    text = annotation if isinstance(annotation, str) else ""
    return list if text.partition("[")[0] in ("list", "List", "typing.List") else None


def _batched(policy: Policy, batch: Batch | None, shape: _Shape, where: str, event: str) -> Policy:
    """A handler that takes a list gets batches, and no other one does."""
    if shape.takes_list:
        return msgspec.structs.replace(policy, batch=batch or policy.batch or DEFAULT_BATCH)
    if batch is not None:
        raise DeclarationError(
            f"{where} declares batch= but takes one event", hint=f"annotate its first parameter as list[{event}]"
        )
    return policy


def _check(where: str, given: Subscription) -> None:
    """Refuse what cannot work together, when it is declared."""
    kind = given.type
    if given.takes_tx:
        _check_in_transactions(where, given)
    if given.filter is not None and given.match is not None:
        raise DeclarationError(f"{where} has where= and match=", hint="put the filter into the index, or drop one")
    if given.filter is not None and not given.tokens():
        raise DeclarationError(
            f"{where}: its filter {given.filter.text!r} can never match",
            hint="a routing attribute cannot have two different values at once",
        )
    if given.via is not None and given.via.target is not kind:
        raise DeclarationError(
            f"{where} handles {kind.name}, but its mapping makes {given.via.target.name}",
            hint=f"declare on({given.via.target.name}, via=…)",
        )
    if kind.python is CloudEvent and given.foreign_subject is None and given.queue is None:
        raise DeclarationError(
            f"{where} takes any CloudEvent but no subject is named", hint='add subject="their.subject.>"'
        )
    if given.foreign_stream is not None and given.foreign_subject is None:
        raise DeclarationError(f"{where} names a foreign stream without a subject", hint='add subject=">"')
    if given.queue is not None and (given.foreign_subject is not None or given.key is not None):
        raise DeclarationError(
            f"{where} takes from queue {given.queue!r}: subject= and key= have no meaning there", hint="drop them"
        )
    if given.key is not None and kind.python is not CloudEvent and given.key.split(".")[0] not in kind.field_names:
        raise DeclarationError(
            f"{where}: {kind.name} has no field {given.key!r} to take as key",
            hint=f"its fields are {', '.join(kind.field_names)}",
        )


def _check_in_transactions(where: str, given: Subscription) -> None:
    if not given.is_async:
        raise DeclarationError(f"{where} takes tx and is no coroutine", hint="declare it as async def …(event, tx)")
    odd = {"subject": given.foreign_subject, "queue": given.queue, "key": given.key}
    if given.takes_list or any(value is not None for value in odd.values()):
        names = ", ".join(f"{name}=" for name, value in odd.items() if value is not None) or "a list of events"
        raise DeclarationError(
            f"{where} takes tx: {names} has no meaning there", hint="in a transaction each event is handled by itself"
        )


def _start(start: StartAt) -> Start:
    match start:
        case "latest":
            return FromLatest()
        case "earliest":
            return FromEarliest()
        case datetime():
            if start.tzinfo is None:
                raise DeclarationError(f"start={start} has no time zone", hint="use datetime(…, tzinfo=UTC)")
            return FromTime(start.timestamp())
        case int() if start >= 1:
            return FromSequence(start)
        case _:
            raise DeclarationError(
                f"start={start!r} is no place in the log",
                hint='use "latest", "earliest", a datetime, or a sequence from 1',
            )


def _seen_as(attribute: RoutingAttribute, via: Mapping | None) -> RoutingAttribute:
    """The routing attribute under the name by which the subscriber's filter knows it; nameless if it does not."""
    if via is None:
        return attribute
    for target, source in via.renames.items():
        if source == attribute.name:
            return msgspec.structs.replace(attribute, name=target)
    return msgspec.structs.replace(attribute, name="")

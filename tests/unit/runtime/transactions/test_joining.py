"""What a subscriber declares about transactions, and what is refused at the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tutti
from tutti.errors import DeclarationError
from tutti.resources.memory import MemoryResource
from tutti.runtime.subscriber import Handler


class Invitation(tutti.Event):
    room: str


class Elsewhere(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    subject: str


class Empty(tutti.TxType):
    subject: str


def joined(subscriber: tutti.Subscriber, **options: Any) -> None:
    @subscriber.join(Meeting, **options)
    async def interested(invite: tutti.Invite[Meeting]) -> bool:
        return True


def handling(subscriber: tutti.Subscriber, event: type = Invitation) -> Handler[..., Any]:
    @subscriber.on(event)
    async def book(event: Any, tx: tutti.Branch) -> None: ...

    return book


def test_what_is_declared_well_is_all_there() -> None:
    rooms = MemoryResource("rooms")
    subscriber = tutti.Subscriber("host", resources=[rooms])
    joined(subscriber, where="subject = 'x'", identity="the hotel")
    handling(subscriber)
    parts = subscriber.parts()
    [joining] = parts.joinings
    assert parts.handled_in(joining) == ("Invitation",)
    assert parts.resources == {"rooms": rooms}
    assert (joining.identity, joining.title) == ("the hotel", "transactions of type Meeting")


def test_who_takes_part_in_nothing_has_nothing_to_check() -> None:
    assert tutti.Subscriber("host").parts().joinings == ()


def _tx_without_join(subscriber: tutti.Subscriber) -> None:
    handling(subscriber)


def _event_of_no_type(subscriber: tutti.Subscriber) -> None:
    joined(subscriber)
    handling(subscriber)
    subscriber.on(Elsewhere, name="other")(handling(tutti.Subscriber("x"), Elsewhere).function)


def _join_without_handler(subscriber: tutti.Subscriber) -> None:
    joined(subscriber)


def _no_compensator(subscriber: tutti.Subscriber) -> None:
    joined(subscriber, compensatable=True)
    handling(subscriber)


def _early_without_compensation(subscriber: tutti.Subscriber) -> None:
    joined(subscriber, early_commit=True)
    handling(subscriber)


@pytest.mark.parametrize(
    ("declare", "sentence", "hint"),
    [
        (_tx_without_join, "takes tx, but its subscriber takes part in no transaction", "host.join"),
        (_event_of_no_type, "Elsewhere is not among the events of Meeting", "events="),
        (_join_without_handler, "without a handler", "Invitation"),
        (_no_compensator, "'book' of subscriber 'host' has no compensator", "@book.compensate"),
        (_early_without_compensation, "early_commit", "compensatable=True"),
    ],
)
def test_what_cannot_work_is_said_with_a_way_out(
    declare: Callable[[tutti.Subscriber], None], sentence: str, hint: str
) -> None:
    subscriber = tutti.Subscriber("host")
    declare(subscriber)
    with pytest.raises(DeclarationError, match=sentence) as found:
        subscriber.parts()
    assert hint in found.value.hint


def test_a_compensator_makes_it_whole() -> None:
    subscriber = tutti.Subscriber("host")
    joined(subscriber, compensatable=True)
    book = handling(subscriber)

    @book.compensate
    async def release(event: Invitation, tx: tutti.Branch) -> None: ...

    assert subscriber.parts().compensators == {"book": release}
    with pytest.raises(DeclarationError, match="is a second one"):
        book.compensate(release)


def test_a_compensator_must_be_callable_as_one() -> None:
    book = handling(tutti.Subscriber("host"))
    with pytest.raises(DeclarationError, match="cannot be called"):
        book.compensate(lambda _event, tx: tx)

    @tutti.Subscriber("plain").on(Invitation)
    async def seen(event: Invitation) -> None: ...

    with pytest.raises(DeclarationError, match="does not run in transactions"):
        seen.compensate(seen.function)


def test_one_declaration_says_how_it_takes_part() -> None:
    subscriber = tutti.Subscriber("host")
    joined(subscriber)
    with pytest.raises(DeclarationError, match="told twice"):
        joined(subscriber)
    subscriber.enrol("venues", Meeting)
    with pytest.raises(DeclarationError, match="told twice to take part in group 'venues'"):
        subscriber.enrol("venues", Empty)
    with pytest.raises(DeclarationError, match="patience=0"):
        subscriber.enrol("others", Meeting, patience=0)


def test_an_ephemeral_subscriber_cannot_promise_anything() -> None:
    subscriber = tutti.Subscriber("host", ephemeral=True)
    joined(subscriber)
    handling(subscriber)
    with pytest.raises(DeclarationError, match="is ephemeral"):
        subscriber.parts()


def test_two_resources_of_one_name_are_refused() -> None:
    subscriber = tutti.Subscriber("host", resources=[MemoryResource("a"), MemoryResource("a")])
    with pytest.raises(DeclarationError, match="two of its resources have one name"):
        subscriber.parts()


@pytest.mark.parametrize("options", [{"queue": "q"}, {"key": "room"}])
def test_what_has_no_meaning_in_a_transaction_is_refused(options: dict[str, Any]) -> None:
    async def book(event: Invitation, tx: tutti.Branch) -> None: ...

    with pytest.raises(DeclarationError, match="has no meaning there"):
        tutti.Subscriber("host").on(Invitation, **options)(book)


def test_a_plain_function_cannot_work_in_a_transaction() -> None:
    def book(event: Invitation, tx: tutti.Branch) -> None: ...

    with pytest.raises(DeclarationError, match="is no coroutine"):
        tutti.Subscriber("host").on(Invitation)(book)

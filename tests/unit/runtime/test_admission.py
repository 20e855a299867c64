"""From a record to an event for the handler; what cannot be understood keeps its place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import tutti
from tutti.bus.port import Record
from tutti.flow.continuity import Gap, Unproven
from tutti.model.cloudevents import to_headers
from tutti.model.envelope import Envelope
from tutti.runtime.admission import Admission, Item
from tutti.runtime.metrics import Metrics
from tutti.testing.clock import ManualClock


class Trade(tutti.Event):
    symbol: str
    price: Decimal = Decimal(1)


class Quote(tutti.Event):
    ticker: str


IBM = b'{"symbol":"IBM","price":"2"}'


def _handler(event: object) -> None: ...
def _mute(event: object, request: Envelope) -> None: ...


class Gatehouse:
    """An admission with its surroundings."""

    def __init__(self, event: type = Trade, **options: Any) -> None:
        policy = options.pop("policy", tutti.Policy())
        subscription = tutti.Subscriber("app", policy=policy).on(event, name="h", **options)(_handler)
        self.clock, self.metrics, self.gaps = ManualClock(), Metrics(), list[Gap | Unproven]()
        self.admission = Admission(subscription.subscription, self.clock, self.metrics, _mute)
        self.admission.on_gap = lambda _record, found: self.gaps.append(found)
        self.count = 0

    def admit(self, data: bytes = IBM, *, partition: int = 3, **attributes: Any) -> Item | None:
        self.count += 1
        core: dict[str, Any] = {
            "id": str(self.count),
            "source": "/desk/1",
            "type": "Trade",
            "time": "2023-11-14T22:13:20Z",
        }
        core |= {name: attributes.pop(name) for name in list(attributes) if name in core}
        headers = to_headers(Envelope(**core, extensions=attributes))
        return self.admission.admit(
            Record(f"s.{partition}", headers, data, self.count), partition, self.clock.monotonic()
        )

    def poison(self, data: bytes = IBM, **attributes: Any) -> str:
        item = self.admit(data, **attributes)
        assert item is not None
        return item.poison


def test_an_event_comes_in_with_its_lane() -> None:
    item = Gatehouse().admit()
    assert item is not None
    assert (item.event, item.lane, item.poison) == (Trade("IBM", Decimal(2)), "desk", "")


def test_a_key_divides_the_lane_of_its_publisher() -> None:
    house = Gatehouse(key="symbol")
    lanes = [item.lane for data in (IBM, b'{"symbol":"SAP"}', IBM) if (item := house.admit(data)) is not None]
    assert lanes[0] == lanes[2] != lanes[1]
    assert all(lane.startswith("desk") for lane in lanes)


@pytest.mark.parametrize(
    ("data", "attributes", "reason"),
    [
        (b'{"price":"2"}', {}, "missing required field `symbol`"),
        (b'{"symbol":7}', {}, "expected `str`, got `int`"),
        (b"not json", {}, "malformed"),
        (b"", {}, "truncated"),
        (IBM, {"type": "Other"}, "type 'Other' stands on the subject of Trade"),
        (IBM, {"priority": "high"}, "priority is 'high', not an integer"),
    ],
)
def test_what_does_not_fit_is_poison_with_the_reason(data: bytes, attributes: dict[str, str], reason: str) -> None:
    assert reason in Gatehouse().poison(data, **attributes)


def test_a_message_that_is_no_event_is_poison_without_a_lane() -> None:
    item = Gatehouse().admission.admit(Record("s", {"ce-id": "1"}, b"", 1), 0, 0.0)
    assert item is not None
    assert ("specversion is missing" in item.poison, item.lane, item.delivery.id) == (True, "", "")


def test_a_user_s_function_that_raises_makes_poison() -> None:
    def explode(trade: Trade) -> str:
        raise LookupError(trade.symbol)

    house = Gatehouse(Quote, via=tutti.mapping(Trade, Quote, ticker=explode))
    assert "LookupError" in house.poison()


def test_the_filter_turns_away_and_its_errors_are_counted() -> None:
    house = Gatehouse(where="price > 1 AND colour = 'red'")
    assert house.admit() is None
    assert house.admit(b'{"symbol":"SAP","price":"0"}') is None
    assert house.metrics.total("tutti_filtered_total") == 2
    assert house.metrics.total("tutti_filter_errors_total") >= 1
    assert house.metrics.total("tutti_received_total") == 2


def test_the_mapping_comes_before_the_filter() -> None:
    house = Gatehouse(Quote, via=tutti.mapping(Trade, Quote, ticker="symbol"), where="ticker = 'IBM'")
    item = house.admit()
    assert item is not None
    assert item.event == Quote("IBM")


def test_other_types_on_a_foreign_subject_are_left_alone() -> None:
    house = Gatehouse(subject="theirs.>")
    assert house.admit(type="Other") is None
    assert house.metrics.total("tutti_filtered_total") == 1


def test_the_same_event_is_admitted_once_per_partition_and_window() -> None:
    house = Gatehouse()
    assert house.admit(id="x") is not None
    assert house.admit(id="x") is None
    assert house.admit(id="x", source="/other/1") is not None
    assert house.metrics.total("tutti_duplicates_total") == 1
    house.clock.advance(121)
    assert house.admit(id="x") is not None


def test_what_is_forgotten_with_a_partition_may_come_again() -> None:
    house = Gatehouse()
    house.admit(id="x")
    house.admission.forget(3)
    assert house.admit(id="x") is not None


def test_a_hole_in_the_numbers_is_told() -> None:
    house = Gatehouse()
    for number in ("1", "2", "5"):
        house.admit(sequence=number.zfill(19))
    assert house.gaps == [Gap("/desk/1", "s.3", 3, 4)]


def test_live_events_have_neither_repeats_nor_holes() -> None:
    house = Gatehouse()
    assert house.admit(partition=-1, id="x", sequence="1") is not None
    assert house.admit(partition=-1, id="x", sequence="9") is not None
    assert house.gaps == []


def test_the_shorter_of_two_lifetimes_counts() -> None:
    house = Gatehouse(policy=tutti.Policy(lifetime=60))
    house.clock.advance(10)  # the event is ten seconds old
    ends = [
        item.expires_at
        for item in (
            house.admit(),
            house.admit(expirytime="2023-11-14T22:13:50Z"),
            house.admit(expirytime="2033-01-01T00:00:00Z"),
        )
        if item is not None
    ]
    assert ends == pytest.approx([60, 30, 60])


def test_priorities_are_read() -> None:
    item = Gatehouse().admit(priority="7")
    assert item is not None
    assert item.priority == 7


def test_any_cloud_event_is_taken_as_it_comes() -> None:
    item = Gatehouse(tutti.CloudEvent, subject="theirs.>").admit(b'{"a":[1]}', type="org.acme.sold")
    assert item is not None
    assert (item.event.type, item.event.data) == ("org.acme.sold", {"a": [1]})

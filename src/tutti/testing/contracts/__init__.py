"""What every transport promises, as tests: whoever writes one runs them against it.

    class TestMyTransport(TransportContract):
        silence = 0.5  # the limit of silence that the transports below are given

        @pytest.fixture
        async def transport_factory(self, layout: Layout) -> AsyncIterator[TransportFactory]:
            transports: list[Transport] = []

            async def started() -> Transport:
                transport = MyTransport("my://servers", layout, silence=self.silence)
                await transport.start()
                transports.append(transport)
                return transport

            yield started
            for transport in transports:
                await transport.close()

Each test asks the factory for one or more connections to the same servers; `layout` names a new namespace every time,
so one server serves them all. Needs pytest and pytest-asyncio. Nothing here sleeps for effect: what must happen has
`PATIENCE` seconds, what must not happen is looked for during `A_MOMENT`.
"""

from __future__ import annotations

from tutti.testing.contracts.append import AppendContract
from tutti.testing.contracts.life import LifeContract
from tutti.testing.contracts.queues import QueueContract
from tutti.testing.contracts.reader import ReaderContract
from tutti.testing.contracts.servers import TransportFactory
from tutti.testing.contracts.state import StateContract
from tutti.testing.contracts.streams import StreamContract
from tutti.testing.contracts.wire import WireContract
from tutti.testing.contracts.words import A_MOMENT, PATIENCE, until

__all__ = [
    "A_MOMENT",
    "PATIENCE",
    "AppendContract",
    "LifeContract",
    "QueueContract",
    "ReaderContract",
    "StateContract",
    "StreamContract",
    "TransportContract",
    "TransportFactory",
    "WireContract",
    "until",
]


class TransportContract(
    LifeContract, StreamContract, AppendContract, ReaderContract, StateContract, QueueContract, WireContract
):
    """All of it. A subclass gives `transport_factory`, and `silence` if half a second does not suit it."""

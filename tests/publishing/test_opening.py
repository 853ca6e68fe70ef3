"""Opening a producer: what stands in the way is one line, and no credential is in it."""

from __future__ import annotations

import pytest

from lbg.brokers import base
from lbg.core.contract import Contract
from lbg.publishing import ContractMismatch, ContractUnknown, Producer
from tests.publishing import fakes
from tests.publishing.fakes import CONTRACT, URL, FakeBroker, opened, raised

AWAY = base.Unreachable("broker.sock: nobody listens: start the broker")


@pytest.mark.parametrize("refusal", [AWAY, base.Refused("wrong password: check the Secret")])
def test_open_says_why_it_cannot_connect(refusal: base.BrokerError) -> None:
    """A broker that is away, or says no, raises its own line at once; the URL's credentials are not in it."""
    broker = FakeBroker(refusal=refusal)
    error = fakes.run(raised(opened(broker), base.BrokerError))
    assert str(error) == refusal.message
    assert "secret" not in str(error)


def test_open_of_an_unknown_stream_says_what_to_do() -> None:
    """A prefix that the broker does not know is refused, and named."""
    error = fakes.run(raised(opened(FakeBroker(topology=None)), ContractUnknown))
    assert str(error).startswith("stream 'orders' is unknown to the broker: create its group first")


def test_open_compares_a_given_contract_with_the_brokers() -> None:
    """A contract that differs is refused in one line that names each field."""
    given = Contract("orders", 16, CONTRACT.algorithm, 4)

    async def story() -> ContractMismatch:
        return await raised(Producer.open(URL, given, outside=fakes.outside(FakeBroker())), ContractMismatch)

    error = fakes.run(story())
    assert "the contract here (count 16, queues 4) is not the broker's (count 8, queues 2)" in str(error)


def test_a_publisher_without_the_right_to_look_needs_the_contract_file() -> None:
    """Refused at the control plane: with a contract it publishes, with a prefix alone it cannot."""
    broker = FakeBroker(admin_refusal=base.Refused("no management rights: grant them, or give the contract file"))

    async def story() -> None:
        await raised(opened(broker), base.Refused)
        async with Producer.open(URL, CONTRACT, outside=fakes.outside(broker)) as producer:
            await producer.publish("1", b"x")

    fakes.run(story())
    assert broker.bodies(1) == [b"x"]

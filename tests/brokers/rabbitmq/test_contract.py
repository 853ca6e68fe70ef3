"""The shipped contract suite against a private RabbitMQ, once for each type of queue."""

from __future__ import annotations

import pytest

from lbg.testing import contract
from tests.brokers.rabbitmq import node as nodes
from tests.brokers.rabbitmq.conftest import RabbitUnderTest


class _Rabbit(contract.BrokerContract, contract.CooperativeHandover, contract.Outputs):
    """All that the adapter can do."""

    queue_type: str

    @pytest.fixture
    def broker(self, node: nodes.Node) -> RabbitUnderTest:
        return RabbitUnderTest(node, self.queue_type)


class TestClassic(_Rabbit):
    """Classic queues. Not `Restarts`: SIGKILL of the node loses late acknowledgements and redelivered marks there."""

    queue_type = "classic"


class TestQuorum(_Rabbit):
    """Quorum queues. `Restarts` is open: just after SIGKILL a queue without a leader yet counts as empty."""

    queue_type = "quorum"

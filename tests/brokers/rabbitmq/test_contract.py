"""The shipped contract suite against a private RabbitMQ, once for each type of queue."""

from __future__ import annotations

import pytest

from lbg.testing import contract
from tests.brokers.rabbitmq.conftest import RabbitUnderTest


class _Rabbit(contract.BrokerContract, contract.CooperativeHandover, contract.Outputs, contract.Restarts):
    """All that the adapter can do."""

    queue_type: str

    @pytest.fixture
    def broker(self, node):
        return RabbitUnderTest(node, self.queue_type)


class TestClassic(_Rabbit):
    """Classic queues."""

    queue_type = "classic"


class TestQuorum(_Rabbit):
    """Quorum queues."""

    queue_type = "quorum"

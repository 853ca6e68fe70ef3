"""The shipped contract suite against a real broker process, once for each handover ability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbg.brokers.base import HandoverAbility
from lbg.testing import contract

if TYPE_CHECKING:
    from tests.brokers.embedded.conftest import BrokerOf, EmbeddedUnderTest


class _Embedded(
    contract.BrokerContract,
    contract.SizeLimits,
    contract.OrderedRejects,
    contract.Outputs,
    contract.AtomicAck,
    contract.Restarts,
):
    """All that does not depend on the handover."""

    ability: HandoverAbility

    @pytest.fixture
    def broker(self, broker_of: BrokerOf) -> EmbeddedUnderTest:
        return broker_of[self.ability]


class TestCooperative(_Embedded, contract.CooperativeHandover):
    """Links wait in order of registration."""

    ability = HandoverAbility.COOPERATIVE


class TestBroker(_Embedded, contract.BrokerHandover):
    """A higher priority takes over."""

    ability = HandoverAbility.BROKER


class TestExclusive(_Embedded, contract.ExclusiveHandover):
    """One link at a time."""

    ability = HandoverAbility.EXCLUSIVE

"""The whole obligatory part of the contract, in one class to subclass."""

from __future__ import annotations

from typing import Final

from lbg.brokers import base
from lbg.testing.contract.delivering import Delivering, GivingBack
from lbg.testing.contract.handing_over import BrokerHandover, CooperativeHandover, ExclusiveHandover
from lbg.testing.contract.ledgers import Ledgers
from lbg.testing.contract.optional import AtomicAck, OrderedRejects, Outputs, SizeLimits
from lbg.testing.contract.publishing import Publishing
from lbg.testing.contract.scene import Scene, story
from lbg.testing.contract.topologies import Deleting, Joining, Observing, Topologies

_HANDOVERS: Final = {
    base.HandoverAbility.COOPERATIVE: CooperativeHandover,
    base.HandoverAbility.BROKER: BrokerHandover,
    base.HandoverAbility.EXCLUSIVE: ExclusiveHandover,
}


class BrokerContract(Topologies, Joining, Deleting, Observing, Publishing, Delivering, GivingBack, Ledgers):
    """Every sentence that holds for each broker; abilities come as further base classes."""

    @story
    async def test_the_abilities_it_reports_are_the_ones_that_are_tested(self, scene: Scene) -> None:
        """Reports, on both halves, exactly the abilities whose classes this test class inherits."""
        session = await scene.session()
        abilities = session.abilities
        assert scene.admin.abilities == abilities
        assert isinstance(self, _HANDOVERS[abilities.handover])
        assert isinstance(self, SizeLimits) == abilities.size_limit
        assert isinstance(self, OrderedRejects) == abilities.ordered_rejects
        assert isinstance(self, Outputs) == abilities.outputs
        assert isinstance(self, AtomicAck) == abilities.ack_and_publish

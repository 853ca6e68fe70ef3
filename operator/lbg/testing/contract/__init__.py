"""The broker contract as tests: what `lbg.brokers.base` promises, checked against a running broker.

An adapter outside this repository runs it too. It describes its broker once, with a back door that does not lead
through the adapter, and picks the classes of the abilities it has::

    from lbg.testing import contract

    @pytest.fixture(scope="module")
    def broker():
        yield MyBroker()                     # a contract.BrokerUnderTest

    class TestMyBroker(contract.BrokerContract, contract.CooperativeHandover, contract.SizeLimits):
        pass

`BrokerContract` fails when the abilities that a session reports and the classes that were picked do not match, so no
ability goes untested. Only `pytest` is needed beside this package; every test runs its own event loop.
"""

import pytest

# Before the imports below, or a failed check would show no values.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in ("delivering", "handing_over", "ledgers", "optional", "publishing", "scene", "topologies")
    )
)

from lbg.testing.contract.handing_over import (  # noqa: E402
    BrokerHandover,
    CooperativeHandover,
    ExclusiveHandover,
)
from lbg.testing.contract.optional import AtomicAck, OrderedRejects, Outputs, Restarts, SizeLimits  # noqa: E402
from lbg.testing.contract.scene import BrokerUnderTest, Scene, Taker, story  # noqa: E402
from lbg.testing.contract.suite import BrokerContract  # noqa: E402

__all__ = [
    "AtomicAck",
    "BrokerContract",
    "BrokerHandover",
    "BrokerUnderTest",
    "CooperativeHandover",
    "ExclusiveHandover",
    "OrderedRejects",
    "Outputs",
    "Restarts",
    "Scene",
    "SizeLimits",
    "Taker",
    "story",
]

"""What a broker can do, from its product and version: asked when it is connected, never configured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lbg.brokers import base


@dataclass(frozen=True, slots=True)
class Features:
    """One broker's product and version."""

    product: str
    version: tuple[int, int]

    @property
    def is_rabbitmq(self) -> bool:
        """Say whether it is RabbitMQ itself."""
        return self.product == "RabbitMQ"

    @property
    def abilities(self) -> base.Abilities:
        """Return what the contract wants to know.

        Handover is cooperative everywhere: priorities would spare a redelivery on 4.0 to 4.2, and can stop a queue for
        good on 4.3. No size limit: reject-publish accepts a later message after it refused an earlier one.
        """
        return base.Abilities(
            handover=base.HandoverAbility.COOPERATIVE,
            outputs=self.is_rabbitmq and self.version >= (3, 9),
        )

    @property
    def has_delivery_limit(self) -> bool:
        """Say whether quorum queues drop a message after 20 deliveries unless told otherwise: from 4.0 on.

        Earlier versions compare the number literally, so that the -1 which lifts the limit there would drop a message
        at its first return; LavinMQ refuses it.
        """
        return self.is_rabbitmq and self.version >= (4, 0)


def of(product: str, version: str) -> Features:
    """Read a version such as `3.10.8` or `4.1.0-rc.1`; what cannot be read counts as 0.0."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return Features(product, (int(found[1]), int(found[2])) if found else (0, 0))


def require_supported(features: Features) -> Features:
    """Return the features of a broker that is new enough.

    Raises:
        Refused: RabbitMQ before 3.10.
    """
    if features.is_rabbitmq and features.version < (3, 10):
        raise base.Refused(
            f"RabbitMQ {features.version[0]}.{features.version[1]} is too old: upgrade it to 3.10 or later"
        )
    return features

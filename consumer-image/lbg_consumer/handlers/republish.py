"""The republish handler: the event itself becomes the output, body untouched."""

from __future__ import annotations

from lbg_consumer.events import Event


class RepublishHandler:
    """Returns the event's own body."""

    async def __call__(self, event: Event) -> bytes | None:
        """Handle one event."""
        return event.body

    async def close(self) -> None:
        """Nothing to let go of."""

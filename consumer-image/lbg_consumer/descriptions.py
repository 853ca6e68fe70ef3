"""What is said about one delivered event: to its handler before, and in its output record after."""

from __future__ import annotations

from lbg.core import lanes
from lbg.core.outputs import OutputRecord
from lbg_consumer.events import Event
from lbg_consumer.tenures import Item


def event_of(slot: lanes.Slot, item: Item) -> Event:
    """Return what the handler is given. Call it before the tenure notes that it handled something."""
    message, tenure, identity = item.delivery.message, item.tenure, item.identity
    held_against = tenure.ledger.attempts.get(item.message_id)
    return Event(
        body=message.body,
        key=message.key or "",
        shard=slot.shard,
        queue=slot.queue,
        epoch=tenure.ledger.epoch,
        message_id=message.message_id or "",
        producer=identity.producer if identity else None,
        incarnation=identity.incarnation if identity else None,
        sequence=identity.sequence if identity else None,
        redelivered=item.delivery.redelivered,
        attempt=1 + (held_against.count if held_against is not None else 0),
        first_after_handover=not tenure.handled_any,
        headers=message.headers,
        content_type=message.content_type,
    )


def record_of(item: Item, event: Event, holder: str, ordinal: int, started: float, ended: float) -> OutputRecord:
    """Return the output record of a handled event. Times are ms since the Unix epoch."""
    published = item.delivery.message.published_at_ms
    return OutputRecord(
        message_id=item.message_id,
        key=event.key,
        shard=event.shard,
        queue=event.queue,
        epoch=event.epoch,
        producer=event.producer or "",
        incarnation=event.incarnation if event.incarnation is not None else -1,
        sequence=event.sequence if event.sequence is not None else -1,
        consumer=holder,
        ordinal=ordinal,
        attempt=event.attempt,
        redelivered=event.redelivered,
        first_after_handover=event.first_after_handover,
        clean=item.tenure.is_clean,
        started=started,
        ended=ended,
        published=float(published) if published is not None else -1.0,
    )

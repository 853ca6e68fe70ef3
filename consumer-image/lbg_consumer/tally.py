"""What a consumer counts: Prometheus metrics, and the few figures that its seat reports.

Names follow the Prometheus conventions (base units, `_total` for counters). Label values are bounded: queues appear
only while this consumer is active on them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Tally:
    """Counts of one consumer process, in a registry of its own."""

    def __init__(self, group: str) -> None:
        self.registry = CollectorRegistry()
        self._group = group
        self.events = self._counter("events_handled", "Events whose handler returned.")
        self.failures = self._counter("handler_failures", "Handler calls that raised.")
        self.duplicates = self._counter("duplicates_dropped", "Events dropped because their mark says handled.")
        self.dead_letters = self._counter("dead_letters", "Events moved to the dead-letter queue.")
        self.lost_links = self._counter("links_lost", "Links that ended without being released.")
        self.handovers = self._counter("handovers", "Queues handed over cleanly.")
        self.violations = Counter(
            "lbg_order_violations", "Order findings by kind.", ["group", "kind"], registry=self.registry
        ).labels
        self.handler_seconds = self._histogram("handler_seconds", "Time of handler calls.")
        self.handover_seconds = self._histogram("handover_seconds", "From the last start to the release taken.")
        self.in_hand = self._gauge("events_in_hand", "Events whose handler runs.")
        self.buffered = self._gauge("events_buffered", "Events delivered and not started.")
        self.ordinal = self._gauge("seat_ordinal", "Claimed ordinal, -1 without a seat.")
        self.blocked_shards = self._gauge("blocked_shards", "Shards held by a blocking event.")
        self.connected = self._gauge("broker_connected", "1 while the broker session is up.")
        self.active = Gauge(
            "lbg_queue_epoch", "Epoch of the queues this consumer is active on.", ["group", "queue"],
            registry=self.registry,
        )  # fmt: skip
        self._recent_ms: deque[float] = deque(maxlen=512)
        self.handled_count = 0
        self.busy_ms = 0.0

    def handled(self, ms: float) -> None:
        """Count one handled event and its handler time in ms."""
        self.handled_count += 1
        self.busy_ms += ms
        self._recent_ms.append(ms)
        self.events.inc()
        self.handler_seconds.observe(ms / 1000.0)

    def handler_failed(self) -> None:
        """Count one failed call."""
        self.failures.inc()

    def violated(self, kind: str) -> None:
        """Count one order finding."""
        self.violations(self._group, kind).inc()

    def percentile(self, share: float) -> float | None:
        """Return a percentile of recent handler times in ms, or None before the first event."""
        if not self._recent_ms:
            return None
        ordered = sorted(self._recent_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def show_active(self, epochs: dict[int, int]) -> None:
        """Publish the epochs of the queues held now, and forget the others."""
        self.active.clear()
        for queue, epoch in epochs.items():
            self.active.labels(self._group, str(queue)).set(epoch)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"lbg_{name}", text, ["group"], registry=self.registry).labels(self._group)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"lbg_{name}", text, ["group"], registry=self.registry).labels(self._group)

    def _histogram(self, name: str, text: str) -> Histogram:
        family = Histogram(f"lbg_{name}", text, ["group"], buckets=BUCKETS, registry=self.registry)
        return family.labels(self._group)

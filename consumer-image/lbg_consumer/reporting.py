"""What this consumer says on its seat, put together from its workers and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lbg.core.membership import Summary
from lbg_consumer.tally import Tally
from lbg_consumer.workers import Worker


@dataclass(slots=True)
class Reporter:
    """Builds summaries. Rates are since the previous renewal, not since the previous look."""

    tally: Tally
    lanes: int
    clock: Callable[[], float]
    answered: dict[str, str] = field(default_factory=dict)
    handovers_ms: list[float] = field(default_factory=list)
    _at: float = 0.0
    _handled: int = 0
    _busy_ms: float = 0.0
    _rate: float = 0.0
    _busy: float = 0.0

    def summarise(self, workers: Iterable[Worker], *, connected: bool, in_hand: int) -> Summary:
        """Return the summary as of now."""
        self._measure()
        workers = list(workers)
        active = [w for w in workers if w.epoch is not None and w.tenure is not None]
        violations: dict[str, int] = {}
        for worker in active:
            assert worker.tenure is not None
            for kind, count in worker.tenure.ledger.violations.items():
                violations[kind] = violations.get(kind, 0) + count
        unreadable = any(w.tenure is not None and not w.tenure.has_ledger for w in active)
        p50, p99 = self.tally.percentile(0.5), self.tally.percentile(0.99)
        return Summary(
            connected=connected,
            bound={w.queue: s for w in workers if (s := w.machine.reports.bound) is not None},
            asks={w.queue: s for w in workers if (s := w.machine.reports.asks) is not None},
            epochs={w.queue: w.epoch or 0 for w in active},
            rate=round(self._rate, 2),
            busy=round(self._busy, 3),
            in_hand=in_hand,
            handled=self.tally.handled_count,
            p50_ms=None if p50 is None else round(p50, 2),
            p99_ms=None if p99 is None else round(p99, 2),
            violations=violations,
            handovers_ms=tuple(round(ms, 1) for ms in self.handovers_ms[-8:]),
            stalled=tuple(w.queue for w in workers if w.machine.reports.stalled),
            blocked=tuple(b for w in workers for b in w.blocked())[:20],
            answered=dict(self.answered),
            conditions=("LedgerUnreadable",) if unreadable else (),
        )

    def _measure(self) -> None:
        now = self.clock()
        elapsed = now - self._at
        if elapsed < 1.0:
            return
        handled, busy = self.tally.handled_count, self.tally.busy_ms
        self._rate = (handled - self._handled) / elapsed
        self._busy = min(1.0, (busy - self._busy_ms) / 1000.0 / elapsed / self.lanes)
        self._at, self._handled, self._busy_ms = now, handled, busy

"""A verdict as text for a terminal and as JSON. Plain and aligned: colour is the command line's business."""

from __future__ import annotations

from collections.abc import Iterator

from lbg.validator.moves import Delays
from lbg.validator.verdicts import Example, Verdict


def to_json(verdict: Verdict) -> dict[str, object]:
    """Return the published form of a verdict, of JSON types only."""
    return verdict.to_json()


def render_text(verdict: Verdict, *, held: bool = False) -> str:
    """Return a verdict as a table, its first faults, and one line that sums it up.

    Args:
        verdict: what to show.
        held: also show who held which queue, from when to when.
    """
    lines = [*_table(verdict)]
    if verdict.examples:
        lines += ["", *map(example_text, verdict.examples)]
    if held and verdict.held:
        lines += ["", *_held(verdict)]
    return "\n".join([*lines, "", _sum(verdict)])


def example_text(example: Example) -> str:
    """Return a fault as one line."""
    where = "" if example.line is None else f"line {example.line}: "
    return f"{example.kind}: {where}{_printable(example.text)}"


def _table(verdict: Verdict) -> Iterator[str]:
    rows: list[tuple[str, int | None, str]] = [
        ("events", verdict.events, _of_published(verdict)),
        ("keys", verdict.keys, ""),
        ("order errors", verdict.order_errors, f"{verdict.shard_order_errors:,} per shard, which is legal across keys"),
        ("gaps", verdict.gaps, "" if verdict.published is not None else "a lost tail shows only with a source"),
        ("duplicates", verdict.duplicates, f"{verdict.stale:,} stale; {_per_death(verdict)}"),
        ("  on planned moves", verdict.duplicates_on_planned_moves, ""),
        ("parked", verdict.parked, ""),
        ("dead-lettered", verdict.dead_lettered, ""),
        ("skipped", verdict.skipped, ""),
        ("unsequenced", verdict.unsequenced, ""),
        ("damaged lines", verdict.damaged, "the input ends within a line" if verdict.truncated else ""),
        ("damaged log lines", verdict.log_damaged, "what they said of planned and unplanned is not known"),
        ("contradictions", verdict.contradictions, ""),
        ("invented", verdict.invented if verdict.published is not None else None, ""),
        ("wrong keys", verdict.wrong_keys if verdict.published is not None else None, ""),
        ("moves", verdict.moves, _moves(verdict)),
    ]
    for name, value, remark in rows:
        if value or name in _ALWAYS:
            yield f"{name:<18} {value or 0:>13,}  {remark}".rstrip()
    yield f"{'handover ms':<18} {_delays(verdict.handover_ms, 'planned moves')}"
    yield f"{'failover ms':<18} {_delays(verdict.failover_ms, 'unplanned moves')}"


_ALWAYS = ("events", "keys", "order errors", "gaps", "duplicates", "  on planned moves", "moves")


def _of_published(verdict: Verdict) -> str:
    lives = f"{verdict.incarnations:,} incarnations of {verdict.producers:,} producers"
    return lives if verdict.published is None else f"of {verdict.published:,} published; {lives}"


def _per_death(verdict: Verdict) -> str:
    text = f"at most {verdict.duplicates_per_death:,} per unplanned loss of an owner"
    beyond = verdict.duplicates_beyond_in_hand
    return text if beyond is None else f"{text}, {beyond:,} beyond what may be in hand"


def _moves(verdict: Verdict) -> str:
    notes = []
    if verdict.unclean_planned_moves:
        notes.append(f"{verdict.unclean_planned_moves:,} found unclean")
    if verdict.overlapping_planned_moves:
        notes.append(f"{verdict.overlapping_planned_moves:,} overlapping")
    planned = f"{verdict.planned_moves:,} planned" + (f" ({', '.join(notes)})" if notes else "")
    said_by = "the run's log" if verdict.with_log else "the records, for want of a log"
    return f"{planned}, {verdict.moves - verdict.planned_moves:,} unplanned, by {said_by}"


def _delays(delays: Delays, of: str) -> str:
    if delays.p50 is None or delays.p99 is None or delays.max is None:
        return f"{'-':>13}  no {of} with a backlog"
    return f"{f'p50 {delays.p50:,.1f}':>13}  p99 {delays.p99:,.1f}, max {delays.max:,.1f}, over {delays.count:,} {of}"


def _held(verdict: Verdict) -> Iterator[str]:
    left_out = verdict.tenures - len(verdict.held)
    yield f"held ({left_out:,} earlier ones left out)" if left_out else "held"
    zero = verdict.held[0].tenure.first_started
    yield f"{'queue':>5} {'epoch':>6} {'from s':>10} {'to s':>10} {'events':>10}  consumer"
    for held in verdict.held:
        tenure = held.tenure
        since, until = (tenure.first_started - zero) / 1000, (tenure.last_ended - zero) / 1000
        consumer = _printable(tenure.consumer)
        yield f"{held.queue:>5} {tenure.epoch:>6} {since:>10.3f} {until:>10.3f} {tenure.events:>10,}  {consumer}"


def _sum(verdict: Verdict) -> str:
    if verdict.ok:
        return "ok: every event that was judged is in order, complete and not repeated by a planned move"
    found = [f"{name.replace('_', ' ')}: {getattr(verdict, name):,}" for name in verdict.faults]
    return "NOT OK: " + "; ".join([*found, *(f"unknown: {reason}" for reason in verdict.unknown)])


def _printable(text: str) -> str:
    # Keys and names come from the input: control characters in them must not reach the terminal.
    return "".join(character if character.isprintable() else "?" for character in text)

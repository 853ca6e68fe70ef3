"""From evidence to a verdict: the definitions of docs/validator.md, as arithmetic.

A verdict may be asked for at any time and changes nothing. It costs time in proportion to moves, lanes and keys, not
to records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from lbg.validator import evidence, moves, places
from lbg.validator import expected as expectations
from lbg.validator.evidence import Evidence, Hole
from lbg.validator.expected import Expected
from lbg.validator.moves import Causes, Change
from lbg.validator.places import KeyCount
from lbg.validator.sequences import Seen
from lbg.validator.source import Published
from lbg.validator.tenures import Repeats
from lbg.validator.verdicts import Example, HeldQueue, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to ask for and how much to show."""

    in_hand_bound: int | None = None  # events that one consumer may have in hand when it dies
    allow_unsequenced: bool = False  # judge the sequenced events and leave the others out
    examples: int = 10  # shown per kind of fault
    held: int = 1_000  # tenures shown, the latest
    keys_in_memory: int = places.DEFAULT_LIMIT


def judge(
    known: Evidence,
    expected: Expected | None,
    options: Options,
    source: Callable[[], Iterable[Published]] | None = None,
) -> Verdict:
    """Return the verdict on the evidence so far; `source` is read once more where missing events are to be named."""
    counts = known.counts
    ownership = _ownership(known)
    holes = known.holes() if expected is None else _missing(known, expected)
    shown, gaps = _counted(holes, options.examples)
    keys = known.places.count()
    first = known.lines - counts[evidence.DAMAGED] - counts[evidence.UNSEQUENCED] - counts[evidence.DUPLICATE]
    changed = [change for change in ownership.changes if change.is_move]
    planned = [move for move in changed if move.planned]
    return Verdict(
        events=first + counts[evidence.UNSEQUENCED],
        keys=keys.keys,
        order_errors=counts[evidence.ORDER_ERROR],
        gaps=gaps,
        duplicates=counts[evidence.DUPLICATE],
        duplicates_on_planned_moves=sum(repeats.count for repeats in ownership.unexcused),
        stale=counts[evidence.STALE],
        parked=counts["parked"],
        dead_lettered=counts["dead-lettered"],
        skipped=counts["skipped"],
        moves=len(changed),
        handover_ms=moves.handover_delays(changed),
        failover_ms=moves.failover_delays(changed),
        records=known.lines,
        shard_order_errors=counts[evidence.SHARD_ORDER_ERROR],
        stale_first=counts[evidence.LATE] - counts[evidence.STALE],
        unsequenced=counts[evidence.UNSEQUENCED],
        epoch_unknown=ownership.epoch_unknown,
        damaged=counts[evidence.DAMAGED],
        truncated=known.truncated,
        contradictions=counts[evidence.CONTRADICTION] + keys.strays,
        planned_moves=len(planned),
        unclean_planned_moves=sum(not move.new.clean for move in planned),
        overlapping_planned_moves=sum(move.overlaps for move in planned),
        duplicates_per_death=max(ownership.by_death.values(), default=0),
        duplicates_beyond_in_hand=_beyond(ownership.by_death, options.in_hand_bound),
        producers=len({producer for producer, _ in known.lives}),
        incarnations=len(known.lives),
        published=None if expected is None else expected.events,
        invented=counts[expectations.INVENTED],
        wrong_keys=counts[expectations.WRONG_KEY],
        with_log=known.log is not None,
        log_damaged=known.counts[evidence.LOG_DAMAGED],
        unknown=tuple(_unknown(known, expected, options, first)),
        examples=tuple(_examples(known, ownership, keys, shown, _named(shown, source))),
        held=tuple(ownership.held[-options.held :]),
        tenures=len(ownership.held),
    )


@dataclass(frozen=True, slots=True)
class _Ownership:
    """What the histories of all queues say together."""

    changes: list[Change]
    unexcused: list[Repeats]
    by_death: Counter[tuple[float, str]]
    held: list[HeldQueue]  # in the order in which they began
    epoch_unknown: int


def _ownership(known: Evidence) -> _Ownership:
    causes = None if known.log is None else Causes(known.log)
    found = _Ownership([], [], Counter(), [], 0)
    for history in known.queues.values():
        changes = moves.changes(history, causes)
        excuses = moves.excuse(history, changes)
        found.changes.extend(changes)
        found.unexcused.extend(excuses.unexcused)
        found.by_death.update(excuses.by_death)
        found.held.extend(HeldQueue(history.queue, tenure) for tenure in history.tenures)
    found.held.sort(key=lambda held: held.tenure.line)
    return replace(found, epoch_unknown=sum(held.tenure.events for held in found.held if not held.tenure.epoch))


def _missing(known: Evidence, expected: Expected) -> Iterator[Hole]:
    """Iterate over what was published and not seen; here the end of each shard is known."""
    unseen = Seen()
    for life, shard, count in expected.lanes():
        lane = None if life is None else known.lanes.get((life[0], shard))
        seen = unseen if lane is None or life is None else lane.lives.get(life[1], unseen)
        for first, end in seen.holes(count):
            yield Hole(life, shard, first, end)


def _counted(holes: Iterable[Hole], most: int) -> tuple[list[Hole], int]:
    shown: list[Hole] = []
    total = 0
    for hole in holes:
        total += hole.end - hole.first
        if len(shown) < most:
            shown.append(hole)
    return shown, total


def _named(holes: list[Hole], source: Callable[[], Iterable[Published]] | None) -> dict[Hole, str]:
    """Find the key of the first event of each hole by reading the source up to there."""
    names: dict[Hole, str] = {}
    if source is None or not holes:
        return names
    # Rows carry no identity and belong to the only life there is, so they are looked up without one.
    wanted = {(life, hole.shard, hole.first): hole for hole in holes for life in (hole.life, None)}
    for entry in source():
        life = None if entry.producer is None else (entry.producer, entry.incarnation)
        hole = wanted.get((life, entry.shard, entry.sequence))
        if hole is not None:
            names[hole] = entry.key
            if len(names) == len(holes):
                break
    return names


def _beyond(by_death: Counter[tuple[float, str]], bound: int | None) -> int | None:
    return None if bound is None else sum(max(0, count - bound) for count in by_death.values())


def _unknown(known: Evidence, expected: Expected | None, options: Options, sequenced: int) -> Iterator[str]:
    unsequenced = known.counts[evidence.UNSEQUENCED]
    if unsequenced and not options.allow_unsequenced:
        yield f"{unsequenced:,} events carry no sequence: nothing tells whether they are in order and complete"
    if not sequenced and expected is None:
        yield "no event was judged: the output shows none that carries a sequence"


def _examples(
    known: Evidence,
    ownership: _Ownership,
    keys: KeyCount,
    holes: list[Hole],
    names: Mapping[Hole, str],
) -> Iterator[Example]:
    for kind in sorted(known.examples):
        yield from known.examples[kind]
    for hole in holes:
        line = known.opened.get((hole.life, hole.shard, hole.first))
        of_key = f" of key {names[hole][:80]!r}" if hole in names else ""
        yield Example(evidence.GAP, line, f"{hole.text}{of_key}: never seen")
    for repeats in islice(sorted(ownership.unexcused, key=lambda repeats: repeats.line), known.most_examples):
        more = f", the first of {repeats.count:,} alike" if repeats.count > 1 else ""
        text = f"{repeats.message_id} again, with no unplanned change of owner in between{more}"
        yield Example("duplicate-on-planned-move", repeats.line, text)
    if keys.strays:
        for key in known.places.strays(known.most_examples):
            yield Example(evidence.CONTRADICTION, None, f"key {key[:80]!r} is in more than one shard")

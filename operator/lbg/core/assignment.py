"""Queue -> ordinal: the table of who serves which queue, and who stands by.

A table is a pure function of (QC, effective CC, group, policy, standbys): every pod computes it alone and all agree.
Whether and when to act on a new table is the business of `handover` and of the plan.

Theory of the Balanced policy, table version 1
----------------------------------------------
Ordinals join one at a time, 0 first, which holds every queue. Ordinal n (from 1) takes floor(QC / (n + 1)) queues, its
fair share, one at a time, always from the ordinal that holds most at that moment; of several, from the one with the
lowest tie hash; and always the queue which that ordinal took last (ordinal 0 took them in ascending order). Hence:

- The table for n + 1 is the table for n after one more join. Exactly floor(QC / (n + 1)) queues move, all of them to
  the newcomer, and none between survivors. No balanced table can move fewer.
- Holdings stay within one of each other: taking from the largest lowers the maximum before anything else.
- The tie hash depends on the group, so the remainder of QC / CC does not land on ordinal 0 in every group of a
  cluster. Rotating the ordinals would do that too, but modulo CC, and so would move everything whenever CC changes.

A step over several ordinals at once is the sum of single joins and may move a few queues more than `lower_bound`: the
newcomers may end up with more of the remainder than they need. Ties that favoured the oldest ordinal would avoid it,
and would make ordinal 0 the busiest everywhere.

Standbys are chosen per owner by consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018) over
jump consistent hashes (Lamping and Veach, 2014). Each queue has its own sequence of candidates; rank 0 is the first
that is not the owner and still has room, room being what keeps the owner's queues within one of each other over the
survivors. Later ranks are the next candidates not chosen yet. So a death spreads its load evenly, and another CC
leaves most standbys where they were.

Any change of these rules, however small, needs another TABLE_VERSION: two pods with different rules would wait for
each other. tests/vectors/assignment-vectors.json pins version 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from xxhash import xxh64_intdigest

from lbg.core import striping

TABLE_VERSION: Final = 1
"""Version of the rules in this module. A consumer that meets a higher one in the group's status stays standby."""

ALL: Final = "All"
Standbys: TypeAlias = int | Literal["All"]
"""How many consumers bind behind the primary of a queue; All is every other one."""


class Policy(StrEnum):
    """How queues are given to ordinals; the values are the names in the group's YAML."""

    BALANCED = "Balanced"
    MODULO = "Modulo"


class Move(NamedTuple):
    """A queue that changes hands; None stands for nobody, on the way from or to zero consumers."""

    queue: int
    source: int | None
    target: int | None


@dataclass(frozen=True)
class Table:
    """Who serves each queue, made by `assign`. Standbys are computed when first asked for, and kept."""

    queues: int
    consumers: int
    group: str
    policy: Policy
    depth: Standbys
    owners: tuple[int, ...]
    """Queue -> ordinal; empty when there are no consumers."""

    def owner(self, queue: int) -> int | None:
        """Return the ordinal that should serve a queue, None when there are no consumers.

        Raises:
            ValueError: there is no such queue.
        """
        self._check_queue(queue)
        return self.owners[queue] if self.consumers else None

    def queues_of(self, ordinal: int) -> tuple[int, ...]:
        """Return the queues an ordinal should serve, ascending; none for an ordinal beyond the table."""
        return self._held.get(ordinal, ())

    def standby(self, queue: int, rank: int) -> int | None:
        """Return the ordinal standing by for a queue at a rank (0 takes over first), None if nobody does."""
        standbys = self.standbys(queue)
        return standbys[rank] if 0 <= rank < len(standbys) else None

    def standbys(self, queue: int) -> tuple[int, ...]:
        """Return the standbys of a queue by rank: as many as configured, at most every other consumer.

        Raises:
            ValueError: there is no such queue.
        """
        self._check_queue(queue)
        return self._standbys[queue]

    def standing_by(self, ordinal: int) -> dict[int, int]:
        """Return the queues behind which an ordinal should stand, with its rank in each."""
        return self._ranks.get(ordinal, {})

    def _check_queue(self, queue: int) -> None:
        if not 0 <= queue < self.queues:
            raise ValueError(f"queue: {queue} is out of bounds: use 0 to {self.queues - 1}")

    @cached_property
    def _held(self) -> dict[int, tuple[int, ...]]:
        held: dict[int, list[int]] = {}
        for queue, owner in enumerate(self.owners):
            held.setdefault(owner, []).append(queue)
        return {owner: tuple(queues) for owner, queues in held.items()}

    @cached_property
    def _standbys(self) -> tuple[tuple[int, ...], ...]:
        survivors = max(self.consumers - 1, 0)
        depth = survivors if self.depth == ALL else min(self.depth, survivors)
        standbys: list[tuple[int, ...]] = [()] * self.queues
        if depth:
            for owner, held in self._held.items():
                for queue, chosen in _spread(held, owner, self.consumers, depth, self.group):
                    standbys[queue] = chosen
        return tuple(standbys)

    @cached_property
    def _ranks(self) -> dict[int, dict[int, int]]:
        ranks: dict[int, dict[int, int]] = {}
        for queue, standbys in enumerate(self._standbys):
            for rank, ordinal in enumerate(standbys):
                ranks.setdefault(ordinal, {})[queue] = rank
        return ranks


def assign(queues: int, consumers: int, group: str, policy: Policy = Policy.BALANCED, standbys: Standbys = 1) -> Table:
    """Return the table for QC queues and an effective CC of `consumers`. Pure: equal arguments, equal table.

    Args:
        group: the group's name in its namespace. It breaks ties, so every pod must pass the same string.

    Raises:
        ValueError: an argument is out of bounds, or there are more consumers than queues.
    """
    if not 1 <= queues <= striping.MAX_QUEUES:
        raise ValueError(f"queues: {queues} is out of bounds: use 1 to {striping.MAX_QUEUES}")
    if not 0 <= consumers <= queues:
        raise ValueError(f"consumers: {consumers} is out of bounds: use 0 to {queues}, the number of queues")
    if standbys != ALL and standbys < 0:
        raise ValueError(f"standbys: {standbys} is negative: use 0 or more, or {ALL}")
    owners: Sequence[int] = ()
    if consumers:
        owners = _modulo(queues, consumers) if policy is Policy.MODULO else _balanced(queues, consumers, group)
    return Table(queues, consumers, group, policy, standbys, tuple(owners))


def moves(before: Table, after: Table) -> tuple[Move, ...]:
    """Return the queues whose owner differs between two tables, ascending.

    Raises:
        ValueError: the tables differ in QC. That is another striping, which moves shards and not queues.
    """
    if before.queues != after.queues:
        raise ValueError(f"queues: {before.queues} and {after.queues} differ: compare tables of the same queues")
    pairs = ((queue, before.owner(queue), after.owner(queue)) for queue in range(before.queues))
    return tuple(Move(queue, source, target) for queue, source, target in pairs if source != target)


def lower_bound(queues: int, before: int, after: int) -> int:
    """Return the fewest moves between any two balanced tables with `before` and `after` consumers.

    From n to n + 1 it is floor(QC / (n + 1)), which the Balanced policy reaches.
    """
    few, many = sorted((before, after))
    if few == many:
        return 0
    # Whoever joins (or leaves) holds at least the floor; the survivors can hold at most `few` of the remainder.
    share, remainder = divmod(queues, many)
    return (many - few) * share + max(0, remainder - few)


def _modulo(queues: int, consumers: int) -> list[int]:
    return [queue % consumers for queue in range(queues)]


def _balanced(queues: int, consumers: int, group: str) -> list[int]:
    owners = [0] * queues
    held = [list(range(queues))]
    # Python's heap has the smallest on top: most loaded first means the negated load.
    loaded = [(-queues, _tie(group, 0), 0)]
    for newcomer in range(1, consumers):
        taken = []
        for _ in range(queues // (newcomer + 1)):
            load, tie, source = loaded[0]
            queue = held[source].pop()
            heapq.heapreplace(loaded, (load + 1, tie, source))
            taken.append(queue)
            owners[queue] = newcomer
        held.append(taken)
        heapq.heappush(loaded, (-len(taken), _tie(group, newcomer), newcomer))
    return owners


def _tie(group: str, ordinal: int) -> int:
    return xxh64_intdigest(f"{group}/ordinal/{ordinal}".encode())


def _spread(
    held: Sequence[int], owner: int, consumers: int, depth: int, group: str
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each queue of one owner with its standbys, so that rank 0 spreads them within one of each other."""
    share, remainder = divmod(len(held), consumers - 1)
    loads: dict[int, int] = {}
    for queue in held:
        chosen: dict[int, None] = {}  # an ordered set: with All, a list would cost CC squared per queue
        for candidate in _candidates(queue, consumers, group):
            if candidate == owner or candidate in chosen:
                continue
            if not chosen:
                load = loads.get(candidate, 0)
                if load > share or (load == share and not remainder):
                    continue
                remainder -= load == share
                loads[candidate] = load + 1
            chosen[candidate] = None
            if len(chosen) == depth:
                break
        yield queue, tuple(chosen)


def _candidates(queue: int, consumers: int, group: str) -> Iterator[int]:
    """Yield ordinals in the order in which they may stand by for a queue, with repeats, each at least twice."""
    name = f"{group}/queue/{queue}".encode()
    for attempt in range(4 * consumers):
        yield _jump(xxh64_intdigest(name, attempt), consumers)
    # Hashes alone may miss an ordinal for long. One sweep over everybody is sure to settle rank 0, but may pass over
    # ordinals that have no room for it; those must come up again, or later ranks would be short of them.
    yield from range(consumers)
    yield from range(consumers)


def _jump(key: int, buckets: int) -> int:
    """Return the bucket of a 64-bit key by jump consistent hash: a new bucket attracts 1 / buckets of the keys."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        following = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket

"""Roles: what one consumer should do with each queue, computed alone from one look at the membership.

Every consumer runs the same pure function over the same records, so nobody has to be told. The result is a preference,
never a permission: the broker decides who is active.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from lbg.core import assignment
from lbg.core.membership import Membership, Seat, Standing


class Role(enum.StrEnum):
    """A consumer's part for one queue."""

    PRIMARY = "primary"
    STANDBY = "standby"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Direction:
    """What the membership says about one queue, seen from one consumer."""

    role: Role
    rank: int = 0  # of a standby, 0 is the first
    generation: int = 0
    term: int = 0  # of the own seat
    primary: Standing | None = None  # what another consumer, the primary, reports as bound
    primary_asks: Standing | None = None  # the primary was refused and asks for the queue (exclusive bind)
    primary_absent: bool = True  # nobody claims the primary's seat, or its holder is not connected
    aside: bool = True  # no waiting link is known to be registered ahead of the primary
    aware: bool = True  # everybody reported as bound has seen this generation
    must_release: bool = False  # nobody should serve: CC is 0 or the group is suspended


def own_seat(seats: Sequence[Seat], holder: str) -> Seat | None:
    """Return the lowest seat that this holder has, or None."""
    return next((seat for seat in seats if seat.holder == holder), None)


def directions(seen: Membership, table: assignment.Table, holder: str) -> tuple[Direction, ...]:
    """Return one direction per queue of the table.

    Args:
        seen: one consistent look at the store.
        table: the assignment for the view's effective CC.
        holder: identity of the consumer that asks.
    """
    seats = {seat.ordinal: seat for seat in seen.seats}
    mine = own_seat(seen.seats, holder)
    others = [seat for seat in seen.seats if seat.holder is not None and seat.holder != holder]
    return tuple(_direction(queue, seen, table, holder, mine, seats, others) for queue in range(table.queues))


def _direction(
    queue: int,
    seen: Membership,
    table: assignment.Table,
    holder: str,
    mine: Seat | None,
    seats: dict[int, Seat],
    others: list[Seat],
) -> Direction:
    generation = seen.view.generation
    owner = table.owner(queue)
    if owner is None or seen.view.suspended:
        return Direction(Role.NONE, generation=generation, must_release=True)
    # A link that is bound may be active without having said so yet.
    holding = [seat for seat in others if queue in seat.summary.epochs or queue in seat.summary.bound]
    aware = all(seat.generation >= generation for seat in holding)
    if mine is not None and mine.ordinal == owner:
        return Direction(Role.PRIMARY, generation=generation, term=mine.term, primary_absent=False, aware=aware)
    role, rank = Role.NONE, 0
    if mine is not None and mine.ordinal in (standbys := table.standbys(queue)):
        role, rank = Role.STANDBY, standbys.index(mine.ordinal)
    primary = seats.get(owner)
    # A second seat of our own, from before a move, says nothing about another consumer.
    if primary is None or primary.holder in (None, holder) or not primary.summary.connected:
        return Direction(role, rank, generation, aware=aware)
    # What a holder reported under an older generation may be about another role: it counts once it has seen this one.
    current = primary.generation >= generation
    standing = primary.summary.bound.get(queue) if current else None
    waiting = [seat for seat in others if seat is not primary and queue not in seat.summary.epochs]
    aside = standing is None or all(seat.summary.bound.get(queue, standing) >= standing for seat in waiting)
    return Direction(
        role,
        rank,
        generation,
        primary=standing,
        primary_asks=primary.summary.asks.get(queue) if current else None,
        primary_absent=False,
        aside=aside,
        aware=aware,
    )

"""One handover machine by hand: what it may be told, and machines that have come as far as a story needs them."""

from __future__ import annotations

from lbg.core.handover import Ability, Activate, Bind, Handover, Release, Timing
from lbg.core.membership import Standing
from lbg.core.roles import Direction, Role

TIMING = Timing()
PRIMARY = Direction(Role.PRIMARY, generation=1, term=1, primary_absent=False)
STANDBY = Direction(Role.STANDBY, generation=1, primary_absent=False)
NOBODY = Direction(Role.NONE, generation=1, primary_absent=False)
RELEASE_ALL = Direction(Role.NONE, generation=1, must_release=True)

FIRST, SECOND, THIRD = Standing(1, 1, 1), Standing(1, 1, 2), Standing(2, 1, 1)


def behind(primary: Standing, **fields: bool | int) -> Direction:
    """A standby's direction while a primary reports to be bound."""
    return Direction(Role.STANDBY, generation=1, primary=primary, primary_absent=False, **fields)  # type: ignore[arg-type]


def asked(asks: Standing, **fields: int) -> Direction:
    """A standby's direction while the primary asks for an exclusive queue."""
    return Direction(Role.STANDBY, generation=1, primary_asks=asks, primary_absent=False, **fields)  # type: ignore[arg-type]


def waiting(direction: Direction, ability: Ability = Ability.COOPERATIVE, timing: Timing = TIMING) -> Handover:
    """A machine that was directed a while ago, and whose link waits."""
    machine = Handover(ability, timing)
    actions = machine.direct(direction, -60.0) or machine.tick(-30.0)
    assert [type(action) for action in actions] == [Bind]
    assert machine.bound(-29.0) == []
    return machine


def active(direction: Direction, ability: Ability = Ability.COOPERATIVE, timing: Timing = TIMING) -> Handover:
    """A machine whose handlers run."""
    machine = waiting(direction, ability, timing)
    assert machine.delivered() == [Activate()]
    assert machine.activated(-28.0) == []
    return machine


def release(machine: Handover, now: float) -> None:
    """Let a machine that drains come to the end of its link."""
    assert machine.emptied() == [Release(clean=True)]
    machine.released(now)

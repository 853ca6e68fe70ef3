"""The queue machine against a model: a plain list of what is committed and not acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from lbg.brokers.base import HandoverAbility
from lbg.brokers.embedded import queues
from lbg.brokers.embedded.queues import BoundLink, Entry, ExclusiveQueue


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> Iterator[None]:
    """Make pages, memory and announcements so small that every example crosses them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues, "KEEP_MESSAGES", 8)
        patch.setattr(queues, "ANNOUNCE_AHEAD", 3)
        yield


class QueueAgainstList(RuleBasedStateMachine):
    """Drives the machine as the engine does, with a dict for a store; expects what the list says."""

    links = Bundle("links")

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[int, bytes] = {}  # committed, acknowledgements applied
        self.uncommitted: list[Entry] = []
        self.stored_mark = 0
        self.pending: list[int] = []  # the model: committed and not acknowledged
        self.bound: list[BoundLink] = []  # the model: in order of registration
        self.active: BoundLink | None = None
        self.held: dict[BoundLink, dict[int, int]] = {}  # the model: tag -> position
        self.delivered: set[int] = set()
        self.doubtful: set[int] = set()  # announced before a crash, so perhaps delivered

    @initialize(ability=st.sampled_from(HandoverAbility))
    def start(self, ability: HandoverAbility) -> None:
        self.ability = ability
        self.queue = ExclusiveQueue(ability)

    # What happens.

    @rule(count=st.integers(1, 12), committed=st.booleans())
    def publish(self, count: int, committed: bool) -> None:
        for _ in range(count):
            position = self.queue.admit()
            self.uncommitted.append((position, b"%d" % position))
        if committed:
            self.commit()

    @rule()
    def commit(self) -> None:
        entries, self.uncommitted = self.uncommitted, []
        self.queue.wants_announcement = False
        announced = self.queue.next_announcement()
        self.store.update(entries)
        self.stored_mark = announced
        if entries:
            self.queue.commit(entries)
            self.pending += [position for position, _ in entries]
        self.queue.announced = announced
        self.deliver()

    @rule(target=links, window=st.integers(1, 6), priority=st.integers(0, 3))
    def bind(self, window: int, priority: int) -> object:
        if not self.queue.can_bind():
            assert self.ability is HandoverAbility.EXCLUSIVE
            assert self.bound
            return multiple()
        link = BoundLink("x", window, priority)
        self.queue.bind(link)
        self.bound.append(link)
        self.held[link] = {}
        self.deliver()
        return link

    @rule(link=consumes(links))
    def unbind(self, link: BoundLink) -> None:
        if link not in self.bound:  # went with a crash
            return
        self.queue.unbind(link)
        self.bound.remove(link)
        del self.held[link]
        if self.active is link:
            self.active = None
        self.deliver()

    @rule(link=links, choices=st.data())
    def acknowledge(self, link: BoundLink, choices: st.DataObject) -> None:
        if link not in self.bound:
            return
        held = self.held[link]
        everything = choices.draw(st.booleans())
        some = list(held) if everything else choices.draw(st.lists(st.sampled_from([*held, 10**6]), max_size=6))
        want = [held.pop(tag) for tag in dict.fromkeys(some) if tag in held]
        assert self.queue.ack(link, some) == want
        for position in want:
            self.pending.remove(position)
            del self.store[position]
        self.deliver()

    @rule()
    def crash(self) -> None:
        """Forget everything but the store."""
        self.queue = ExclusiveQueue(
            self.ability,
            published=self.queue.published,
            acked=self.queue.published - len(self.pending),
            announced=self.stored_mark,
        )
        self.uncommitted.clear()
        self.doubtful = set(range(1, self.stored_mark + 1)) - self.delivered
        self.bound.clear()
        self.held.clear()
        self.active = None

    # What must come of it.

    def choose_active(self) -> None:
        best = max((link.priority for link in self.bound), default=0)
        if self.ability is HandoverAbility.BROKER:
            superseded = self.active and self.active.priority < best and not self.held[self.active]
            candidates = [link for link in self.bound if link.priority == best]
        else:
            superseded = False
            candidates = self.bound
        if (self.active is None or superseded) and candidates:
            self.active = candidates[0]

    def is_quiesced(self) -> bool:
        if self.ability is not HandoverAbility.BROKER or self.active is None:
            return False
        return any(link.priority > self.active.priority for link in self.bound)

    def deliver(self) -> None:
        """Pump and load as the engine does, and check every delivery against the list."""
        self.choose_active()
        while True:
            push = self.queue.pump(1_000)
            if push is not None:
                assert push.link is self.active
                for at, (position, data) in enumerate(push.entries):
                    self.check_delivery(push.first_tag + at, position, data, redelivered=at < push.redelivered)
                continue
            after = self.queue.missing()
            if after is None:
                return
            page = sorted((p, d) for p, d in self.store.items() if after < p <= self.queue.published)[:4]
            upto = self.queue.published if len(page) < 4 else page[-1][0]
            self.queue.load(page, upto)

    def check_delivery(self, tag: int, position: int, data: bytes, *, redelivered: bool) -> None:
        assert self.active is not None
        assert not self.is_quiesced(), "a superseded link gets nothing new"
        held = self.held[self.active]
        assert position == next(p for p in self.pending if p not in held.values())
        assert position <= self.stored_mark, "the store must know the mark before the message leaves"
        assert data == b"%d" % position
        assert tag > max(held, default=0)
        if position not in self.doubtful:
            assert redelivered == (position in self.delivered)
        else:
            assert redelivered
        held[tag] = position
        assert len(held) <= self.active.window
        self.delivered.add(position)
        self.doubtful.discard(position)

    @invariant()
    def figures_agree(self) -> None:
        held = self.held[self.active] if self.active else {}
        assert self.queue.active is self.active
        assert self.queue.backlog == len(self.pending)
        assert self.queue.unacknowledged == len(held)

    @invariant()
    def nothing_waits_without_a_reason(self) -> None:
        """A link with room gets what is there, unless it is superseded or the mark must be written first."""
        if self.active is None:
            return
        held = self.held[self.active]
        waiting = [position for position in self.pending if position not in held.values()]
        if waiting and len(held) < self.active.window and not self.is_quiesced():
            assert self.queue.wants_announcement
            assert waiting[0] > self.queue.announced
            assert self.queue.next_announcement() >= waiting[0]


TestQueueAgainstList = QueueAgainstList.TestCase

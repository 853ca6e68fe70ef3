"""The producer for threads: the same guarantees, from plain scripts and from several threads at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from lbg.brokers import base
from lbg.brokers.base import Outcome
from lbg.publishing import (
    BufferFull,
    ContractUnknown,
    InvalidEvent,
    NotConfirmed,
    NotPublished,
    Options,
    ProducerClosed,
    ProducerForked,
    ShardStopped,
    SyncProducer,
)
from tests.publishing import fakes
from tests.publishing.fakes import PATIENCE, QUICK, URL, FakeBroker, wait_until

ROOT = Path(__file__).parents[2]


def opened(broker: FakeBroker, options: Options = QUICK) -> SyncProducer:
    return SyncProducer.open(URL, "orders", "shop", options=options, outside=fakes.outside(broker))


def on_loop(producer: SyncProducer, act: Callable[[], None]) -> None:
    """Have the fake broker do something in the thread in which its sessions live."""
    done = threading.Event()

    def step() -> None:
        act()
        done.set()

    producer._loop.call_soon_threadsafe(step)
    assert done.wait(PATIENCE)


@contextmanager
def thread(target: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run something beside the test, and see that it ends."""
    runs = threading.Thread(target=target)
    runs.start()
    yield runs
    runs.join(PATIENCE)
    assert not runs.is_alive()


def test_publish_returns_when_the_broker_has_confirmed() -> None:
    """The identity comes back, and the event is at the broker."""
    broker = FakeBroker()
    with opened(broker) as producer:
        identity = producer.publish("11", b"x", {"a": 1}, "text/plain")
        assert broker.log[0].identity == identity
        assert (producer.name, producer.contract) == ("shop", fakes.CONTRACT)
    assert (identity.shard, identity.sequence) == (3, 0)


def test_threads_keep_their_order() -> None:
    """Events that several threads send, to the same keys, are accepted in each thread's order, and none is lost."""
    broker, count = FakeBroker(), 300

    def send_all(producer: SyncProducer, t: int) -> None:
        for i in range(count):
            producer.send(str(i % 3), b"%d %d" % (t, i))

    with opened(broker, Options(max_events=50, batch=7)) as producer, ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(send_all, producer, t) for t in range(4)]
        for sender in senders:
            sender.result(PATIENCE)
        producer.flush(PATIENCE)
        stats = producer.stats()
    assert (stats.accepted, stats.confirmed) == (4 * count, 4 * count)
    for shard in range(3):
        sent = [tuple(map(int, body.split())) for body in broker.bodies(shard)]
        for t in range(4):
            assert [i for thread, i in sent if thread == t] == list(range(shard, count, 3))
        assert broker.ids(shard) == list(range(len(sent)))


def test_a_full_buffer_holds_the_sender_until_there_is_room() -> None:
    """The third send waits, and goes on once the broker answers."""
    broker = FakeBroker(holds_answers=True)
    with opened(broker, Options(max_events=2)) as producer:
        producer.send("1", b"a")
        producer.send("1", b"b")
        with thread(lambda: producer.send("1", b"c")) as sending:
            assert sending.is_alive()

            def release() -> None:
                broker.holds_answers = False
                broker.answer()

            on_loop(producer, release)
    assert broker.bodies(1) == [b"a", b"b", b"c"]


def test_a_full_buffer_raises_if_told_so() -> None:
    """Under when_full="raise" a send that does not fit raises at once."""
    broker = FakeBroker(holds_answers=True)
    producer = opened(broker, Options(max_events=1, when_full="raise", close_timeout=0.01))
    producer.send("1", b"a")
    with pytest.raises(BufferFull):
        producer.send("1", b"b")
    with pytest.raises(NotConfirmed, match="1 event is not confirmed"):
        producer.close()


def test_a_publish_may_be_bounded_in_time() -> None:
    """After the deadline the caller goes on; the event is published when the broker answers."""
    broker = FakeBroker(holds_answers=True)
    with opened(broker) as producer:
        with pytest.raises(TimeoutError, match="the event stays in the buffer"):
            producer.publish("1", b"a", within=0.01)
        broker.holds_answers = False
        on_loop(producer, broker.answer)
    assert broker.bodies(1) == [b"a"]


def test_a_lost_connection_is_nothing_to_the_caller() -> None:
    """A publish goes on across a loss."""
    broker = FakeBroker(holds_answers=True)
    with opened(broker) as producer:
        identities = []

        def drop() -> None:
            broker.holds_answers = False
            broker.drop()

        with thread(lambda: identities.append(producer.publish("1", b"a"))):
            wait_until(lambda: bool(broker.submits))
            on_loop(producer, drop)
        assert identities[0].sequence == 0
        assert producer.stats().reconnects == 1
    assert broker.ids(1) == [0, 0]


def test_a_stopped_shard_is_reported_and_restarted() -> None:
    """Publish raises, flush reports what was sent behind, and restart goes on with an incarnation of its own."""
    broker = FakeBroker(verdicts={1: Outcome.REFUSED})
    with opened(broker) as producer:
        with pytest.raises(NotPublished, match="the broker refuses it"):
            producer.publish("1", b"a")
        with pytest.raises(ShardStopped, match=r"call restart\(1\)"):
            producer.send("1", b"b")
        broker.verdicts.clear()
        producer.restart(1)
        assert producer.publish("1", b"c").sequence == 0
        with pytest.raises(ValueError, match="shard 1 is not stopped"):
            producer.restart(1)
    assert broker.bodies(1) == [b"c"]


def test_events_sent_behind_a_refused_one_fail_and_are_reported() -> None:
    """A burst behind a refused event is not revived by a restart that comes later."""
    broker = FakeBroker(verdicts={1: Outcome.REFUSED}, holds_answers=True)
    with opened(broker) as producer:
        for body in (b"a", b"b"):
            producer.send("1", body)
        wait_until(lambda: bool(broker.submits))
        broker.holds_answers = False

        def answer_and_queue_more() -> None:
            # On the loop: what is sent now stays in the inbox until the refusal is known.
            producer.send("1", b"c")
            broker.answer()

        on_loop(producer, answer_and_queue_more)
        with pytest.raises(NotConfirmed) as caught:
            producer.flush(PATIENCE)
        assert caught.value.count == 3
        assert producer.stats().failed == 3
    assert broker.log == []


def test_close_ends_the_thread_and_refuses_the_rest() -> None:
    """After close nothing is taken, a second close is nothing, and no thread is left."""
    broker = FakeBroker()
    producer = opened(broker)
    producer.send("1", b"a")
    producer.close()
    producer.close()
    for call in (
        lambda: producer.send("1", b"b"),
        lambda: producer.publish("1", b"b"),
        producer.flush,
        lambda: producer.restart(1),
    ):
        with pytest.raises(ProducerClosed):
            call()
    assert not producer._thread.is_alive()
    assert producer.stats().confirmed == 1
    assert broker.bodies(1) == [b"a"]


def test_close_releases_who_waits_for_room() -> None:
    """A thread that waits for room when the producer is closed gets an error, not silence."""
    broker = FakeBroker(holds_answers=True)
    producer = opened(broker, Options(max_events=1, close_timeout=0.01))
    producer.send("1", b"a")
    errors: list[Exception] = []

    def send() -> None:
        try:
            producer.send("1", b"b")
        except ProducerClosed as error:
            errors.append(error)

    with thread(send):
        wait_until(lambda: bool(producer._room.waiting))
        with pytest.raises(NotConfirmed):
            producer.close()
    assert len(errors) == 1


def test_an_error_in_the_block_is_not_hidden() -> None:
    """Ctrl-C in the block leaves it as such, with a note on what is not confirmed."""
    broker = FakeBroker(holds_answers=True)

    def script() -> None:
        with opened(broker, Options(close_timeout=0.01)) as producer:
            producer.send("1", b"a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        script()
    assert "1 event is not confirmed" in caught.value.__notes__[0]


def test_open_raises_in_the_callers_thread() -> None:
    """What cannot be opened says why and leaves no thread behind."""
    before = threading.active_count()
    with pytest.raises(ContractUnknown):
        opened(FakeBroker(topology=None))
    with pytest.raises(base.Unreachable, match="nobody listens"):
        opened(FakeBroker(refusal=base.Unreachable("nobody listens")))
    assert threading.active_count() == before


def test_bad_events_are_refused_in_the_callers_thread() -> None:
    """Checks happen where the mistake is made, before anything is numbered."""
    broker = FakeBroker()
    with opened(broker) as producer:
        with pytest.raises(InvalidEvent):
            producer.send("1", "text")  # type: ignore[arg-type]
        assert producer.publish("1", b"x").sequence == 0


def test_a_forked_child_is_refused() -> None:
    """In the child every use raises one line, and close does nothing; the parent goes on."""
    broker = FakeBroker()
    with opened(broker) as producer:
        producer.publish("1", b"a")
        child = os.fork()
        if child == 0:
            refused = 0
            calls: list[Callable[[], object]] = [
                lambda: producer.send("1", b"c"),
                producer.flush,
                lambda: producer.restart(1),
            ]
            for call in calls:
                try:
                    call()
                except ProducerForked:
                    refused += 1
            producer.close()
            os._exit(0 if refused == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        producer.publish("1", b"b")
    assert broker.bodies(1) == [b"a", b"b"]


SCRIPT = """
import atexit
from lbg.publishing import Options, SyncProducer
from tests.publishing import fakes

broker = fakes.FakeBroker(holds_answers={holds})
atexit.register(lambda: print(len(broker.log), flush=True))  # runs after what is registered later
options = Options(close_timeout={patience})
producer = SyncProducer.open(fakes.URL, "orders", "shop", options=options, outside=fakes.outside(broker))
"""


def script(end: str, *, holds: bool = False, patience: float = PATIENCE) -> list[str]:
    return [sys.executable, "-c", SCRIPT.format(holds=holds, patience=patience) + end]


def test_a_script_that_forgets_to_close_has_its_events_confirmed() -> None:
    """At exit, what was sent is flushed."""
    result = subprocess.run(
        script('producer.send("1", b"x")'), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")


def test_a_script_that_forgets_to_close_is_told_what_was_not_confirmed() -> None:
    """At exit, after the deadline, one line names what is lost; no traceback."""
    command = script('producer.send("1", b"x")', holds=True, patience=0.01)
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.stderr.startswith("producer shop: 1 event is not confirmed: after 0.01 s")
    assert result.stderr.count("\n") == 1


def test_ctrl_c_in_a_script_loses_nothing_that_was_taken() -> None:
    """Interrupted in a loop of sends, the block has all that it took confirmed, and ends."""
    end = """
import itertools
try:
    with producer:
        for n in itertools.count():
            producer.send("1", b"x")
            if n == 500:
                print("sending", flush=True)
except KeyboardInterrupt:
    stats = producer.stats()
    print(stats.accepted, stats.confirmed, len(broker.log))
"""
    with subprocess.Popen(script(end), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "sending\n"
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0
    accepted, confirmed, logged = map(int, out.splitlines()[0].split())
    assert accepted == confirmed == logged >= 500

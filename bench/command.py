"""`python -m bench [NAME...]`: measure, and print a table or JSON. Exit code 0 whatever the figures say.

A missed target is said in the table and ends nothing: what a shared machine can do today is no property of the code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import assigning, document, end_to_end, figures, hashing_rate, lane_use, moving, overhead, publishing_rate
from bench.staging import Stuck

BENCHES: Final[dict[str, Callable[[bool], figures.Result]]] = {
    "hashing": hashing_rate.measure,
    "assignment": assigning.measure,
    "publishing": publishing_rate.measure,
    "end-to-end": end_to_end.measure,
    "overhead": overhead.measure,
    "lanes": lane_use.measure,
    "moves": moving.measure,
}


def main() -> int:
    """Run the benches that were named, or all; return 0, or 1 if one could not be made."""
    options = _parsed()
    chosen = options.names or list(BENCHES)
    load_before = os.getloadavg()[0]
    results = []
    for name in chosen:
        _say(f"{name} ...")
        began = time.monotonic()
        try:
            results.append(BENCHES[name](options.quick))
        except Stuck as stuck:
            _say(f"{name}: {stuck}")
            return 1
        _say(f"{name}: {time.monotonic() - began:.0f} s")
    machine = _machine(load_before)
    if options.write is not None:
        command = shlex.join(["python", "-m", "bench", *chosen, *(["--quick"] if options.quick else [])])
        options.write.write_text(document.markdown(results, machine, command), encoding="utf-8")
    if options.output == "json":
        print(json.dumps({"machine": machine, "results": results}, indent=2))
    else:
        print(document.text(results))
    return 0


def _machine(load_before: float) -> dict[str, str]:
    """Return what the figures depend on, besides the code."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load average before": f"{load_before:.2f}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHES], metavar="NAME", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works, not to be quoted")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the table as a document")
    return parser.parse_args(argv)

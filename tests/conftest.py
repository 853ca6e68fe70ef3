"""What every test run shares: Hypothesis profiles and the guard over skipped tests.

Nothing here knows the packages under test: fixtures of one subject live in that subject's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest

# No deadline and no check for slowness in any profile: machines are shared, and timing is measured in bench/.
_UNTIMED = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("dev", deadline=None, suppress_health_check=_UNTIMED)
# print_blob: a failure seen only in CI must be repeatable on a desk.
hypothesis.settings.register_profile("ci", deadline=None, suppress_health_check=_UNTIMED, print_blob=True)
hypothesis.settings.register_profile(
    "soak",
    deadline=None,
    suppress_health_check=_UNTIMED,
    print_blob=True,
    max_examples=2_000,
    stateful_step_count=200,
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


# The guard over skips. A skip looks like success, so every one that may happen is written down with its reason; a test
# that starts to skip for another cause fails the session instead of fading out of it.

ALLOWED_SKIPS = Path(__file__).with_name("allowed-skips.txt")


class AllowedSkip(NamedTuple):
    """One line of the list: which tests may skip, and the reason they must give. In both, `*` stands for any text."""

    test: str
    reason: str

    def covers(self, test: str, reason: str) -> bool:
        """Tell whether a skip of `test` for `reason` is the one that this line allows."""
        return _matches(self.test, test) and _matches(self.reason, reason)


def _matches(pattern: str, text: str) -> bool:
    # Not fnmatch: the brackets of a parametrized test id are not a character class.
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def read_allowed_skips(path: Path) -> list[AllowedSkip]:
    """Read the list: one `TEST | REASON` per line, `#` starts a comment line; a file that is not there allows nothing.

    Raises pytest.UsageError, naming the line, when a line has no test or no reason.
    """
    allowed = []
    lines = path.read_text().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        test, bar, reason = (part.strip() for part in line.partition("|"))
        if not (test and bar and reason):
            raise pytest.UsageError(f"{path.name}:{number}: write the line as TEST | REASON")
        allowed.append(AllowedSkip(test, reason))
    return allowed


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # For a skip, pytest's longrepr is (file, line, "Skipped: why").
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


class SkipGuard:
    """Compare the skips of a session with the list of those allowed, and fail the session on any other."""

    def __init__(self, allowed: list[AllowedSkip]) -> None:
        self.allowed = allowed
        self.listed = 0
        self.unlisted: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Count a skip; an expected failure (xfail) is reported as a skip too, and is not one."""
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = _skip_reason(report)
        if any(entry.covers(report.nodeid, reason) for entry in self.allowed):
            self.listed += 1
        else:
            self.unlisted.append(f"{report.nodeid} | {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was skipped."""
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a whole file that was skipped."""
        self.note(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Turn a session that would pass into a failed one; a session that failed keeps its own exit code."""
        yield
        if self.unlisted and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the count, and one line per skip that is not listed."""
        for skip in self.unlisted:
            terminalreporter.write_line(f"skip not allowed, list it or let the test run: {skip}", red=True)
        terminalreporter.write_line(f"skips: {self.listed} allowed, listed in tests/{ALLOWED_SKIPS.name}")


def pytest_configure(config: pytest.Config) -> None:
    """Install the guard for this session."""
    config.pluginmanager.register(SkipGuard(read_allowed_skips(ALLOWED_SKIPS)), "skip-guard")

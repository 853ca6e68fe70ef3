"""The guard over skips in tests/conftest.py, run in sessions of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

SKIPPING = """
import pytest

def test_runs(): pass

@pytest.mark.parametrize("kind", ["a", "b"])
def test_broker(kind): pytest.skip("no broker at LBG_TEST_URL")
"""


@pytest.fixture
def session(root: Path, pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with this project's conftest.py and one test file; each test runs pytest in it."""
    pytester.makeconftest((root / "tests" / "conftest.py").read_text())
    pytester.makepyfile(test_it=SKIPPING)
    return pytester


def allow(session: pytest.Pytester, *lines: str) -> None:
    """Write the list of allowed skips."""
    (session.path / "allowed-skips.txt").write_text("".join(f"{line}\n" for line in lines))


def test_listed_skips_pass_and_are_counted(session: pytest.Pytester) -> None:
    """Skips that the list names leave the session green, and the summary says how many there were."""
    allow(session, "# brokers are not on every machine", "", "test_it.py::test_broker[*] | no broker at *")
    result = session.runpytest_inprocess()
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["skips: 2 allowed, listed in tests/allowed-skips.txt"])


def test_unlisted_skip_fails_the_session_with_one_line(session: pytest.Pytester) -> None:
    """One listed and one unlisted skip: the session fails and one line names the test and its reason."""
    allow(session, "test_it.py::test_broker[a] | no broker at *")
    result = session.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    named = [line for line in result.outlines if line.startswith("skip not allowed")]
    assert len(named) == 1
    assert named[0].endswith("test_it.py::test_broker[b] | no broker at LBG_TEST_URL")
    result.stdout.fnmatch_lines(["skips: 1 allowed, listed in tests/allowed-skips.txt"])


def test_allowed_test_may_not_skip_for_another_reason(session: pytest.Pytester) -> None:
    """The list allows a reason, not a test: a skip for a new cause is a new question."""
    allow(session, "test_it.py::test_broker[*] | no container engine")
    assert session.runpytest_inprocess().ret == pytest.ExitCode.TESTS_FAILED


def test_missing_list_allows_nothing(session: pytest.Pytester) -> None:
    """Without the file every skip is unlisted."""
    assert session.runpytest_inprocess().ret == pytest.ExitCode.TESTS_FAILED


def test_skipped_file_needs_its_line_too(session: pytest.Pytester) -> None:
    """A file that skips at import is one skip, under the file's own name."""
    session.makepyfile(test_it="import pytest\npytest.skip('needs a cluster', allow_module_level=True)")
    assert session.runpytest_inprocess().ret == pytest.ExitCode.TESTS_FAILED
    allow(session, "test_it.py | needs a cluster")
    result = session.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["skips: 1 allowed, listed in tests/allowed-skips.txt"])


def test_expected_failure_is_no_skip(session: pytest.Pytester) -> None:
    """pytest reports an xfail as skipped; the guard leaves it alone."""
    session.makepyfile(test_it="import pytest\n@pytest.mark.xfail(reason='known')\ndef test_it(): assert False")
    result = session.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["skips: 0 allowed, listed in tests/allowed-skips.txt"])


def test_failed_session_stays_failed(session: pytest.Pytester) -> None:
    """A failure next to an allowed skip is still a failure."""
    session.makepyfile(test_it="import pytest\ndef test_a(): pytest.skip('why')\ndef test_b(): assert False")
    allow(session, "test_it.py::test_a | why")
    assert session.runpytest_inprocess().ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("line", ["test_it.py::test_broker", "test_it.py::test_broker |", "| no broker"])
def test_line_without_test_or_reason_is_refused(session: pytest.Pytester, line: str) -> None:
    """A line that does not say both stops the run, and the message names file and line."""
    allow(session, "# comment", line)
    result = session.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*allowed-skips.txt:2: write the line as TEST | REASON"])

"""Which run a command means: the one that is named, the only live one, and never a guess among several."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbg.cli import errors, runs
from lbg.local.folders import RunFolder


def live(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have these runs be live."""
    monkeypatch.setattr(runs, "live", lambda: iter([RunFolder(Path(name)) for name in names]))


def test_only_live_run_need_not_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run is enough of an answer."""
    live(monkeypatch, "runs/a")
    assert runs.meant(None) == "runs/a"


def test_several_live_runs_are_listed_and_none_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop or a kill must not hit the wrong run."""
    live(monkeypatch, "runs/a", "runs/b")
    with pytest.raises(errors.NotNow, match="runs/a, runs/b"):
        runs.meant(None)
    assert runs.broker_of_the_live_run() is None


def test_named_run_is_meant_whatever_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name wins."""
    live(monkeypatch, "runs/a", "runs/b")
    assert runs.meant("orders") == "orders"


def test_no_folder_of_runs_means_no_live_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of any project there is nothing to find, and the line says how to start."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.NotNow, match="lbg run"):
        runs.meant(None)

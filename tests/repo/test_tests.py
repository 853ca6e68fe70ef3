"""Rules for the tests themselves: each says what it expects, none sleeps, and no skip goes without its reason."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FOLDERS = ["tests", "e2e"]


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Every call with its dotted name, such as `pytest.mark.skip`; a bare decorator is a call without arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                if not isinstance(decorator, ast.Call):
                    yield ast.copy_location(ast.Call(decorator, [], []), decorator), ast.unparse(decorator)


def sleeps(tree: ast.Module) -> list[int]:
    """Lines that wait for time to pass: time.sleep, and asyncio.sleep of a written number other than 0."""
    found = []
    for call, name in calls(tree):
        argument = call.args[0] if call.args else None
        timed = isinstance(argument, ast.Constant) and argument.value != 0
        if name in {"time.sleep", "sleep"} or (name in {"asyncio.sleep", "anyio.sleep"} and timed):
            found.append(call.lineno)
    return found


def skips_without_reason(tree: ast.Module) -> list[int]:
    """Lines that skip, or expect a failure, and do not say why."""
    found = []
    for call, name in calls(tree):
        reason = next((keyword.value for keyword in call.keywords if keyword.arg == "reason"), None)
        if name == "pytest.skip" and reason is None and call.args:
            reason = call.args[0]
        marks = {"pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail", "pytest.importorskip"}
        empty = reason is None or (isinstance(reason, ast.Constant) and not reason.value)
        if name in marks and empty:
            found.append(call.lineno)
    return found


def undocumented_tests(tree: ast.Module) -> list[int]:
    """Lines of the test functions that do not state their expectation."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.lineno for node in functions if node.name.startswith("test_") and not ast.get_docstring(node)]


RULES: list[Callable[[ast.Module], list[int]]] = [sleeps, skips_without_reason, undocumented_tests]


@pytest.mark.parametrize("rule", RULES)
def test_every_test_file_follows_the_rule(
    root: Path, files: list[Path], rule: Callable[[ast.Module], list[int]]
) -> None:
    """No file under tests/ or e2e/ breaks it; what does is named by file and line."""
    modules = [path for path in files if path.suffix == ".py" and path.relative_to(root).parts[0] in FOLDERS]
    assert modules
    found = [f"{path.relative_to(root)}:{line}" for path in modules for line in rule(ast.parse(path.read_bytes()))]
    assert found == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (sleeps, "time.sleep(0.1)"),
        (sleeps, "sleep(1)"),
        (sleeps, "async def wait():\n    await asyncio.sleep(0.05)"),
        (skips_without_reason, "pytest.skip()"),
        (skips_without_reason, "pytest.skip('')"),
        (skips_without_reason, "@pytest.mark.skip\ndef test_it(): ..."),
        (skips_without_reason, "@pytest.mark.skipif(True)\ndef test_it(): ..."),
        (skips_without_reason, "pytestmark = pytest.mark.skipif(True)"),
        (skips_without_reason, "pytest.importorskip('pika')"),
        (undocumented_tests, "def test_it(): ..."),
        (undocumented_tests, "class TestIt:\n    async def test_it(self): ..."),
    ],
)
def test_rule_reports_what_it_is_for(rule: Callable[[ast.Module], list[int]], code: str) -> None:
    """Each rule can fail."""
    assert rule(ast.parse(code)) != []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (sleeps, "async def give_way():\n    await asyncio.sleep(0)"),
        (sleeps, "async def handler():\n    await asyncio.sleep(handler_seconds)"),
        (skips_without_reason, "pytest.skip('no broker')"),
        (skips_without_reason, "pytest.mark.skipif(True, reason='no broker')"),
        (undocumented_tests, "def test_it():\n    '''It is so.'''"),
    ],
)
def test_rule_lets_the_rest_pass(rule: Callable[[ast.Module], list[int]], code: str) -> None:
    """A rule reports nothing that it is not for."""
    assert rule(ast.parse(code)) == []


def test_allowed_skips_name_files_that_exist(root: Path) -> None:
    """A line about a test file that is gone would allow a skip of nothing, and hide a typing error."""
    lines = (root / "tests" / "allowed-skips.txt").read_text().splitlines()
    patterns = [
        line.partition("::")[0].partition("|")[0].strip() for line in lines if line and not line.startswith("#")
    ]
    assert [pattern for pattern in patterns if not list(root.glob(pattern))] == []

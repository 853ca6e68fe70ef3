"""Contract files, names and incarnations: read, never typed; unusable ones are named in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lbg.core.contract import Contract
from lbg.publishing import ContractUnknown, InvalidOption, Outside, Producer, contracts, identities
from tests.publishing import fakes
from tests.publishing.fakes import CONTRACT, URL, FakeBroker, raised


def test_a_contract_file_is_what_the_group_publishes(tmp_path: Path) -> None:
    """The published form is read back to the same contract; fields of later versions are ignored."""
    path = tmp_path / "contract.json"
    path.write_text(json.dumps({**CONTRACT.to_mapping(), "later": True}))
    assert contracts.read(path) == CONTRACT


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (None, "No such file or directory: mount the group's publisher ConfigMap there"),
        ("{", "not JSON: mount the group's publisher ConfigMap there"),
        ("[" * 100_000, "not JSON: mount the group's publisher ConfigMap there"),
        ("[1]", "expected one JSON object, got list"),
        ('{"prefix": "orders"}', "count: expected an integer"),
        ('{"prefix": "o", "count": 4, "algorithm": "md5", "queues": 2}', "algorithm: expected one of xxh64"),
        ('{"prefix": "o", "count": 2, "algorithm": "xxh64", "queues": 4}', "queues"),
    ],
)
def test_an_unusable_contract_file_is_named(tmp_path: Path, text: str | None, want: str) -> None:
    """The line names the file and the field."""
    path = tmp_path / "contract.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ContractUnknown) as caught:
        contracts.read(path)
    assert str(caught.value).startswith(f"contract file {path}: {want}")


def test_a_producer_opens_from_a_contract_file(tmp_path: Path) -> None:
    """The file alone is enough where the broker stores no contract."""
    path = tmp_path / "contract.json"
    path.write_text(json.dumps(CONTRACT.to_mapping()))

    async def story() -> Contract:
        async with Producer.open(URL, path, outside=fakes.outside(FakeBroker(topology=None))) as producer:
            return producer.contract

    assert fakes.run(story()) == CONTRACT


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 129, "ü" * 65, "\ud800", 7])
def test_unusable_names_are_refused(name: str) -> None:
    """A name is printable text that leaves room for the numbers in a message id of 255 bytes."""

    async def story() -> InvalidOption:
        opening = Producer.open(URL, "orders", name, outside=fakes.outside(FakeBroker()))
        return await raised(opening, InvalidOption)

    assert str(fakes.run(story())).startswith("name: ")


def test_an_empty_prefix_is_refused() -> None:
    """A stream without a name cannot be looked up."""

    async def story() -> InvalidOption:
        return await raised(Producer.open(URL, "", outside=fakes.outside(FakeBroker())), InvalidOption)

    assert str(fakes.run(story())).startswith("stream: the prefix is empty")


def test_incarnations_grow_whatever_the_clock_does(tmp_path: Path) -> None:
    """Within a process, and with a memory across processes, each is higher than the last; other names are free."""
    memory = tmp_path / "incarnation"
    assert identities.next_incarnation("growing", 100) == 100
    assert identities.next_incarnation("growing", 100) == 101
    assert identities.next_incarnation("growing", 50) == 102
    assert identities.next_incarnation("remembered", 1_000, memory) == 1_000
    assert memory.read_text() == f"{1_000:019d}\n"
    assert identities.next_incarnation("after a restart", 5, memory) == 1_001
    assert identities.next_incarnation("after a restart", 2**62, memory) == 2**62


def test_a_child_goes_on_where_its_parent_was() -> None:
    """After a fork the child's next incarnation exceeds the parent's, although no time has passed."""
    mine = identities.next_incarnation("forked", 1_000)
    child = os.fork()
    if child == 0:
        os._exit(0 if identities.next_incarnation("forked", 1_000) > mine else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("content", "want"),
    [("not a number", "does not hold an incarnation: remove it"), (None, "give a file that can be written")],
    ids=["damaged", "a folder"],
)
def test_an_unusable_memory_is_refused(tmp_path: Path, content: str | None, want: str) -> None:
    """Without its memory a producer does not start: it might take a number that was used before."""
    path = tmp_path
    if content is not None:
        path = tmp_path / "incarnation"
        path.write_text(content)
    broker = FakeBroker()

    async def story() -> InvalidOption:
        world = Outside(adapter=broker, memory=path)
        return await raised(Producer.open(URL, "orders", outside=world), InvalidOption)

    assert want in str(fakes.run(story()))
    assert broker.sessions == [], "the session that was opened meanwhile is closed"

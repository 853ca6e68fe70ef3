"""Rules for what is written in Markdown: fragment names, the index of design notes, links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

FRAGMENT = re.compile(r"\d+\.(feature|fix|change|removal|doc)(\.\d+)?\.md")
NOTE = re.compile(r"\d{4}-[a-z0-9-]+\.md")
# The target of [text](target), without an anchor; addresses on the web are not followed.
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def names(folder: Path) -> set[str]:
    """The Markdown files of a folder, without its README."""
    return {path.name for path in folder.glob("*.md")} - {"README.md"}


def test_change_fragments_are_named_by_number_and_kind(root: Path) -> None:
    """Each fragment is NNN.kind.md, or NNN.kind.N.md, and says something."""
    fragments = names(root / "changes")
    assert {name for name in fragments if not FRAGMENT.fullmatch(name)} == set()
    assert {name for name in fragments if not (root / "changes" / name).read_text().strip()} == set()


def test_design_notes_are_numbered_and_listed(root: Path) -> None:
    """Each note is NNNN-title.md, no number is used twice, and the index links to every note."""
    notes = names(root / "design")
    assert {name for name in notes if not NOTE.fullmatch(name)} == set()
    assert len({name[:4] for name in notes}) == len(notes)
    assert notes <= set(LINK.findall((root / "design" / "README.md").read_text()))


def test_relative_links_lead_to_files(root: Path, files: list[Path]) -> None:
    """A link from one document to another file of the repository does not dangle."""
    pages = [path for path in files if path.suffix == ".md"]
    links = [(page, link) for page in pages for link in LINK.findall(page.read_text())]
    assert links
    assert [f"{page.relative_to(root)}: {link}" for page, link in links if not (page.parent / link).exists()] == []

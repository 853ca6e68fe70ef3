"""The errors of local mode. Here lives nothing else, so that every module may import them."""

from __future__ import annotations


class LocalError(Exception):
    """A run cannot start, go on or do what was asked: one line for a person, with whose fault it is and the remedy."""


class StorageRefused(LocalError):
    """The machine's storage refuses: no space, no permission, a damaged file."""

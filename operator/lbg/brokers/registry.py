"""From the scheme of a URL to the adapter that serves it.

Adapters are imported when they are asked for, so that an image without a broker's client library can use the others. An
adapter outside this repository registers itself as an entry point of the group `lbg.brokers`, named by its scheme.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import urllib.parse
from typing import Final, NamedTuple, cast

from lbg.brokers import base

ENTRY_POINTS: Final = "lbg.brokers"


class Entry(NamedTuple):
    """Where an adapter lives, and the extra that brings what it imports (None: always installed)."""

    module: str
    name: str
    extra: str | None = None


_EMBEDDED: Final = Entry("lbg.brokers.embedded.client", "EmbeddedAdapter")

ADAPTERS: Final[dict[str, Entry]] = {
    "embedded": _EMBEDDED,
    "embedded+tcp": _EMBEDDED,
}


def adapter(url: str) -> base.Adapter:
    """Return the adapter for a URL; its own errors come later, when it connects.

    Raises:
        Unsupported: no adapter has this scheme, or what it needs is not installed; the line names what to install.
    """
    scheme = urllib.parse.urlsplit(url).scheme
    entry = ADAPTERS.get(scheme) or _outside(scheme)
    if entry is None:
        known = ", ".join(sorted(ADAPTERS))
        raise base.Unsupported(f"broker URL scheme {scheme or '(none)'!r} is not known: use one of {known}")
    try:
        module = importlib.import_module(entry.module)
    except ModuleNotFoundError as error:
        if entry.extra is None:
            raise
        raise base.Unsupported(
            f"brokers of scheme {scheme!r} need {error.name}: pip install 'load-balanced-groups[{entry.extra}]'"
        ) from None
    return cast("base.Adapter", getattr(module, entry.name)())


def _outside(scheme: str) -> Entry | None:
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=scheme):
        return Entry(point.module, point.attr)
    return None

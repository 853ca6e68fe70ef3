"""Credentials never reach a terminal, a log or a traceback file: what `lbg` says of a failure passes through here."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_WORD: Final = re.compile(r"[^\s'\"]+")
_HIDDEN: Final = "***"
_SHORTEST: Final = 3  # a password of one letter would turn every line into stars, and hide nothing
_known: set[str] = set()


def remember(url: str) -> None:
    """Note the password of a URL, so that `redact` finds it also outside of a URL."""
    _, _, rest = url.partition("://")
    userinfo, _, _ = rest.rpartition("@")
    _, _, password = userinfo.partition(":")
    _known.update(form for form in (password, unquote(password)) if len(form) >= _SHORTEST)


def redact(text: str) -> str:
    """Return the text without the credentials of any URL in it and without every password remembered."""
    text = _WORD.sub(lambda match: _without_userinfo(match[0]), text)
    # The longest first: one password may be a part of another.
    for password in sorted(_known, key=len, reverse=True):
        text = text.replace(password, _HIDDEN)
    return text


def _without_userinfo(word: str) -> str:
    # A password may hold any character when somebody forgot to escape it, `@` and `/` included: everything up to the
    # last `@` goes. That may hide a part of the path, which is the lesser harm. No regular expression: one that looks
    # for the scheme takes quadratic time on a long word.
    scheme, separator, rest = word.partition("://")
    userinfo, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{_HIDDEN}@{host}" if userinfo and at else word

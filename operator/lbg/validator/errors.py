"""What makes a verification impossible, as opposed to what it finds."""

from __future__ import annotations

import tempfile


class Unusable(ValueError):
    """An input that cannot be read or understood: one line that names it and the remedy. It says nothing of order."""


def temporary_folder_refuses(error: Exception) -> Unusable:
    """Return the error for a temporary file that cannot be written."""
    reason = str(getattr(error, "strerror", None) or error).lower()
    return Unusable(f"temporary folder {tempfile.gettempdir()}: {reason}: make room, or set TMPDIR to another folder")

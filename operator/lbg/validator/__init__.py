"""The validator: proves from what consumers wrote whether every sub-stream was handled in order and complete.

It reads output records, the run's own log and, if given, what was published; docs/validator.md has the definitions. It
knows no broker, no consumer and no command line: records come from a file or from whoever iterates over them, and the
findings go out as values and as text. `Checker` takes records one at a time, for a live proof or a broker's stream.
"""

from __future__ import annotations

from lbg.validator.checker import Checker
from lbg.validator.errors import Unusable
from lbg.validator.expected import Expected
from lbg.validator.judging import Options
from lbg.validator.rendering import render_text, to_json
from lbg.validator.source import Published, SourceFile, replayed
from lbg.validator.verdicts import Example, Verdict
from lbg.validator.verification import follow_path, verify, verify_path

__all__ = [
    "Checker",
    "Example",
    "Expected",
    "Options",
    "Published",
    "SourceFile",
    "Unusable",
    "Verdict",
    "follow_path",
    "render_text",
    "replayed",
    "to_json",
    "verify",
    "verify_path",
]

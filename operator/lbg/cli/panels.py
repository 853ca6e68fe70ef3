"""The headings under which `lbg --help` lists the commands, and the form of the examples below each command's help."""

from __future__ import annotations

from typing import Final

RUN: Final = "A group on this machine"
BROKER: Final = "Streams on a broker"
LOOK: Final = "Look before you act"
CHECK: Final = "Evidence"
SELF: Final = "This command"
PANELS: Final = (RUN, BROKER, LOOK, CHECK, SELF)


def examples(*lines: str) -> str:
    """Return the epilog that shows commands as they are typed; \\b keeps the help from reflowing them."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)

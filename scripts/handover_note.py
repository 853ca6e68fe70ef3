"""Print the design note on handover with its generated part renewed from the machine's own table.

The prose of the note is written by hand; what stands between the two markers is written here, so that the table and the
diagram cannot say anything else than the code. `scripts/generate.py` runs this and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from lbg.core.handover import TRANSITIONS, Event, State

NOTE: Final = Path(__file__).resolve().parent.parent / "design" / "0002-handover.md"
BEGIN: Final = "<!-- generated from lbg.core.handover.TRANSITIONS by scripts/handover_note.py: begin -->"
END: Final = "<!-- generated: end -->"


def table() -> str:
    """Return one row per state: what can happen to it, and where that leads."""
    rows = ["| state | what can happen, and the state it leads to |", "| --- | --- |"]
    for state in State:
        moves = [f"{event} → **{end}**" for (start, event), end in TRANSITIONS.items() if start is state]
        rows.append(f"| **{state}** | {'; '.join(moves)} |")
    return "\n".join(rows)


def diagram() -> str:
    """Return the diagram as Mermaid text, without losses: an arrow from every state would hide the others."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.DETACHED}"]
    lines += [
        f"    {start} --> {end}: {event}" for (start, event), end in TRANSITIONS.items() if event is not Event.LOST
    ]
    return "\n".join([*lines, "```"])


def generated() -> str:
    """Return the generated part, markers included."""
    rest = ", ".join(state for state in State if (state, Event.LOST) not in TRANSITIONS)
    ends = " or ".join({end for (_, event), end in TRANSITIONS.items() if event is Event.LOST})
    losses = f"Not drawn: *{Event.LOST}* leads from every state but {rest} to {ends}."
    return "\n\n".join([BEGIN, table(), diagram(), losses, END])


def renewed(note: str) -> str:
    """Return the note with its generated part as it should be.

    Raises:
        ValueError: the markers are missing.
    """
    before, begin, rest = note.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{NOTE.name}: the markers of the generated part are missing: put them back")
    return before + generated() + after


if __name__ == "__main__":
    sys.stdout.write(renewed(NOTE.read_text(encoding="utf-8")))

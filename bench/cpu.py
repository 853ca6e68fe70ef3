"""CPU time of other processes, as the kernel counts it (proc(5)); the machine's other work does not change it much."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def seconds(pid: int) -> float:
    """Return user and system time of a living process since its start, all threads; steps of 10 ms."""
    text = Path(f"/proc/{pid}/stat").read_text()
    # The name stands in parentheses and may hold spaces and parentheses itself.
    values = text[text.rindex(")") + 2 :].split()
    return (int(values[11]) + int(values[12])) / _TICKS

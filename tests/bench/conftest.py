"""Make the package `bench` importable: it is no part of the distribution, so nothing has installed it."""

import sys
from pathlib import Path

# At the end: nothing in the root may come before what is installed.
sys.path.append(str(Path(__file__).resolve().parents[2]))

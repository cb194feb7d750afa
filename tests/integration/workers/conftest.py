"""Makes `toy_envs` importable by its name, also in the worker processes of a pool."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "unit" / "envs"))

"""Where code stands, for errors about classes that users wrote."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any


def describe_method(method: Callable[..., Any]) -> str:
    """Name a method with its class, file and line, as far as they can be found: `my.Net.forward (my.py line 12)`."""
    owner = getattr(method, "__self__", None)
    name = getattr(method, "__name__", type(method).__name__)
    if owner is not None:
        name = f"{type(owner).__module__}.{type(owner).__qualname__}.{name}"
    try:
        file, (_, line) = inspect.getsourcefile(method), inspect.getsourcelines(method)
    except (OSError, TypeError):
        return name
    return f"{name} ({Path(file).name} line {line})" if file else name

"""Environments that no other process can import: classes and functions of a script, a notebook's cell or a program on
stdin. They are kept by value, in a file of this user that is named by its content.

A configuration names one as `env: {id: surreal.envs.by_value:make_kept, kwargs: {code: DIGEST}}`. A file is code. It is
found only by the digest of what this user has kept, so a policy from elsewhere cannot bring code along.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from surreal.base.errors import EnvError
from surreal.base.system.files import write_whole

ENV_ID = f"{__name__}:make_kept"


def keep(make: Callable[..., Any]) -> str:
    """Keep a class or function that makes an environment, by value, and return the digest of its file."""
    try:
        data = cloudpickle.dumps(make)
    except Exception as error:
        raise EnvError(
            f"{make.__qualname__} cannot be passed to other processes: {error}; put it into a separate .py file"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    path = _path(digest)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, data, mode=0o600)
    return digest


def make_kept(code: str, **kwargs: Any) -> Any:
    """Make the environment that this user has kept under a digest on this machine; raises `EnvError` without one."""
    path = _path(code)
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = f"the environment was given as a class or function of a program, whose code is not in {path.parent}"
        raise EnvError(f"{problem}; train with it again, or put it into a module") from error
    if hashlib.sha256(data).hexdigest() != code or path.stat().st_uid != os.getuid():
        raise EnvError(f"{path} is not what was kept there; delete it, and train again")
    return cloudpickle.loads(data)(**kwargs)


def name_env(make: Callable[..., Any]) -> tuple[str, dict[str, str], str | None]:
    """Name a class or function for other processes: id, arguments, and its module's folder if one is needed."""
    module = sys.modules.get(make.__module__)
    file = getattr(module, "__file__", None)
    is_importable = file is not None and make.__module__ != "__main__" and "." not in make.__qualname__
    if module is None or file is None or not is_importable or getattr(module, make.__name__, None) is not make:
        return ENV_ID, {"code": keep(make)}, None
    root = Path(file).resolve().parents[make.__module__.count(".") + (Path(file).stem == "__init__")]
    return f"{make.__module__}:{make.__name__}", {}, str(root)


def _path(digest: str) -> Path:
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "surreal" / "environments"
    return folder / f"{Path(digest).name}.pickle"

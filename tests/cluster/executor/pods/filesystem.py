"""The file system of a container, as a shell script that builds it and becomes the container's command.

The script runs as the first process of a mount and a PID namespace of the container's own, so that all that it mounts
goes with the container. One may read it: it lies in the cluster's folder, `script` of the container.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cluster.executor.manifests import Manifest
from tests.cluster.executor.pods.images import PROGRAMS_FOLDER, Image
from tests.cluster.executor.pods.volumes import Mount

#: What /etc of an image has, of this machine's.
_ETC = ("alternatives", "ld.so.cache", "localtime", "nsswitch.conf", "ssl")
_DEVICES = ("full", "null", "random", "urandom", "zero")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nsurreal:x:10001:10001::/tmp:/bin/sh\n"
_GROUP = "root:x:0:\nsurreal:x:10001:\n"


class User(NamedTuple):
    """Who a container's processes are, and what they may.

    Args:
        capabilities: As setpriv takes them: "-all,+net_bind_service".
    """

    user: int
    group: int
    groups: tuple[int, ...]
    capabilities: str
    may_gain: bool

    def command(self) -> list[str]:
        """The beginning of a command that is to run as this user."""
        groups = ["--groups", ",".join(map(str, self.groups))] if self.groups else ["--clear-groups"]
        return [
            *("/usr/bin/setpriv", "--reuid", str(self.user), "--regid", str(self.group), *groups),
            *(["--bounding-set", self.capabilities] if self.capabilities else []),
            *(["--inh-caps", "-all"] if self.capabilities else []),
            *([] if self.may_gain else ["--no-new-privs"]),
        ]


def find_user(pod: Manifest, container: Manifest, image: Image) -> User:
    """The user of a container, by its own security context, the pod's and the image.

    Raises:
        ValueError: if it would be root where the pod must not be.
    """
    context = pod.get("securityContext", {}) | container.get("securityContext", {})
    user = context.get("runAsUser", image.user[0])
    group = context.get("runAsGroup", image.user[1] if "runAsUser" not in context else 0)
    if context.get("runAsNonRoot") and user == 0:
        raise ValueError(f"container {container['name']} has runAsNonRoot, and would run as root")
    groups = [*context.get("supplementalGroups", []), *([context["fsGroup"]] if "fsGroup" in context else [])]
    dropped = [f"-{name.lower()}" for name in context.get("capabilities", {}).get("drop", [])]
    added = [f"+{name.lower()}" for name in context.get("capabilities", {}).get("add", [])]
    may_gain = context.get("allowPrivilegeEscalation", True)
    return User(user, group, tuple(groups), ",".join(dropped + added), may_gain)


def container_script(
    root: Path, image: Image, mounts: Sequence[Mount], start: Sequence[str], *, is_read_only: bool
) -> str:
    """A script that builds a container's file system at `root`, and starts its command inside.

    Args:
        root: An empty folder; outside of the container it stays empty.
        image: What the file system is made of.
        mounts: What is bound into it, outer folders first.
        start: The command, with what runs before it (`User.command`).
        is_read_only: Whether only mounts can be written to.
    """
    lines = [
        "set -e",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        f"mount -t tmpfs -o mode=755 image {shlex.quote(str(root))}",
        f"cd {shlex.quote(str(root))}",
        "mkdir -p dev etc proc root run sys usr var",
        "mkdir -m 1777 tmp",
        *_system_folders(),
        f"printf %s {shlex.quote(_PASSWD)} >etc/passwd",
        f"printf %s {shlex.quote(_GROUP)} >etc/group",
        *(f"cp -a /etc/{name} etc/" for name in _ETC if os.path.lexists(f"/etc/{name}")),
        "mount -t proc proc proc",
        "mount -t sysfs -o ro sysfs sys",
        *_devices(),
        *(line for target, folder in image.folders.items() for line in _bind(Mount(folder, target, is_read_only=True))),
        *(line for name, text in image.programs.items() for line in _program(f"{PROGRAMS_FOLDER[1:]}/{name}", text)),
        *(line for mount in mounts for line in _bind(mount)),
        *(["mount -o remount,ro ."] if is_read_only else []),
        f"exec chroot . {shlex.join(start)}",
    ]
    return "\n".join(lines) + "\n"


def _system_folders() -> list[str]:
    """/usr, read-only, with /bin, /lib and others as they are here: links into it, or folders beside it."""
    lines = _bind(Mount(Path("/usr"), "/usr", is_read_only=True))
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        folder = Path("/", name)
        if folder.is_symlink():
            lines.append(f"ln -s {shlex.quote(os.readlink(folder))} {name}")
        elif folder.exists():
            lines += _bind(Mount(folder, str(folder), is_read_only=True))
    return lines


def _devices() -> list[str]:
    return [
        *(line for name in _DEVICES for line in (f"touch dev/{name}", f"mount --bind /dev/{name} dev/{name}")),
        "mkdir -m 1777 dev/shm",
        "mount -t tmpfs -o mode=1777 shm dev/shm",
        "ln -s /proc/self/fd dev/fd",
        *(f"ln -s /proc/self/fd/{number} dev/{name}" for number, name in enumerate(("stdin", "stdout", "stderr"))),
    ]


def _program(path: str, text: str) -> list[str]:
    script = shlex.quote(f"#!/bin/sh\n{text}\n")
    return [f"mkdir -p {PROGRAMS_FOLDER[1:]}", f"printf %s {script} >{path}", f"chmod 755 {path}"]


def _bind(mount: Mount) -> list[str]:
    source, target = shlex.quote(str(mount.source)), shlex.quote(mount.target.lstrip("/"))
    make = f"mkdir -p {target}" if mount.source.is_dir() else f'mkdir -p "$(dirname {target})" && touch {target}'
    lines = [make, f"mount --bind {source} {target}"]
    return [*lines, f"mount -o remount,bind,ro {target}"] if mount.is_read_only else lines

"""One container: its command in namespaces of its own, with a file system of its own, until it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.cluster.executor.manifests import Manifest
from tests.cluster.executor.network.router import Sandbox
from tests.cluster.executor.pods.environment import expand
from tests.cluster.executor.pods.filesystem import container_script, find_user
from tests.cluster.executor.pods.images import find_image
from tests.cluster.executor.pods.volumes import Mount
from tests.cluster.executor.processes import end, entering, innermost, program

#: nsenter and unshare fork before the command.
_DEPTH = 2
_SIGNAL_STATUS = 128


class Container:
    """A running container.

    Args:
        spec: The container as written.
        pod: The pod's spec, for what containers share.
        sandbox: The pod's namespaces.
        folder: For its script and its log, which goes on where a former container of this name left it.
        environment: Its variables.
        mounts: What it sees of the pod's volumes, and of the cluster.
    """

    def __init__(
        self,
        spec: Manifest,
        pod: Manifest,
        sandbox: Sandbox,
        folder: Path,
        environment: Mapping[str, str],
        mounts: Sequence[Mount],
    ) -> None:
        image = find_image(spec["image"])
        self.name = str(spec["name"])
        self.environment = {"HOSTNAME": "", "HOME": "/", **environment}
        self.log = folder / "log"
        context = spec.get("securityContext", {})
        working_dir = spec.get("workingDir", image.working_dir)
        # The programs on the way are found by a PATH of their own.
        words = ["/usr/bin/env", f"--chdir={working_dir}", f"PATH={self.environment['PATH']}"]
        self._inside = [*find_user(pod, spec, image).command(), *words]
        command = spec.get("command", image.entrypoint)
        arguments = spec.get("args", image.command if "command" not in spec else ())
        root, script = folder / "root", folder / "script"
        root.mkdir(parents=True, exist_ok=True)
        script.write_text(
            container_script(
                root,
                image,
                mounts,
                [*self._inside, *expand([*command, *arguments], self.environment)],
                is_read_only=context.get("readOnlyRootFilesystem", False),
            )
        )
        with self.log.open("ab") as log:
            self._process = self._spawn(
                [
                    *entering(sandbox.pid, "net", "pid", "ipc", "uts"),
                    *(program("unshare"), "--fork", "--pid", "--mount", "/bin/sh", str(script)),
                ],
                log,
            )
        self._pid: int | None = None
        self._has_begun = False

    def has_begun(self) -> bool:
        """Whether its file system is built and its command is started; until then it sees that of this machine."""
        if not self._has_begun:
            with contextlib.suppress(OSError):
                self._has_begun = os.stat(f"/proc/{self.pid}/root").st_dev != os.stat("/").st_dev
        return self._has_begun

    def exit_status(self) -> int | None:
        """How its command ended, 128 and more by a signal; None while it runs."""
        status = self._process.poll()
        return status if status is None or status >= 0 else _SIGNAL_STATUS - status

    def start(self, command: Sequence[str], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start another command in the container, as the container's user: what `kubectl exec` and exec probes do.

        Raises:
            ProcessLookupError: if it has not begun, or has ended.
        """
        if not self.has_begun():
            raise ProcessLookupError(f"container {self.name} is not running")
        namespaces = entering(self.pid, "net", "pid", "ipc", "uts", "mount", "root")
        return self._spawn([*namespaces, *self._inside, *expand(command, self.environment)], output)

    @property
    def pid(self) -> int:
        """The container's first process, as this machine counts.

        Raises:
            ProcessLookupError: if it has ended.
        """
        while self._pid is None:
            if self._process.poll() is not None:
                raise ProcessLookupError(f"container {self.name} has ended")
            self._pid = innermost(self._process, _DEPTH)
            if self._pid is None:
                time.sleep(0.002)  # it is forking
        return self._pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the container's first process; one that it does not handle is nothing to it."""
        if self.exit_status() is None:
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill all its processes."""
        with contextlib.suppress(ProcessLookupError):
            _ = self.pid  # before it has forked, there is not all to kill
        end(self._process)

    def _spawn(self, command: Sequence[str], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

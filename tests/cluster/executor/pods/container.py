"""One container in podman: a manifest as the engine's options, and its process from start to end.

The engine does what runtimes do for kubelets: image, user, groups, capabilities, read-only root, limits and log.
"""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.cluster.executor.manifests import Manifest
from tests.cluster.executor.network.services import DOMAIN, NAME_SERVER
from tests.cluster.executor.pods.objects import expand

ENGINE = "podman"


class Container:
    """A container with these options of the engine; `folder` has its log, which the next one continues, and `oom`."""

    def __init__(self, spec: Manifest, options: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name = f"{folder.name}-{uuid.uuid4().hex[:8]}"
        self._pid_file, self._errors = folder / f"{self._name}.pid", folder / "engine"
        self._end: int | None = None
        options = [
            *(f"--name={self._name}", f"--pidfile={self._pid_file}", "--pull=never", "--no-healthcheck"),
            *("--log-driver=k8s-file", f"--log-opt=path={folder / 'log'}", *options),
            *(f"--env={name}={value}" for name, value in environment.items()),
            *([f"--entrypoint={json.dumps(expand(spec['command'], environment))}"] if "command" in spec else []),
        ]
        command = [ENGINE, "run", "--detach", *options, spec["image"], *expand(spec.get("args", []), environment)]
        with self._errors.open("wb") as errors:
            self._start = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, process_group=0
            )

    def has_begun(self) -> bool:
        """Whether the engine has started its command."""
        return self._start.poll() == 0

    def exit_status(self) -> int | None:
        """How its command ended, 128 and more by a signal; None while it runs. An OSError has the engine's message."""
        if self._start.poll():
            raise OSError(f"container {self._name}: {self._errors.read_text().strip()}")
        if not self.has_begun() or self._end is not None:
            return self._end
        if not psutil.pid_exists(self.pid):
            self._end = int(subprocess.check_output([ENGINE, "wait", self._name]))
        return self._end

    @property
    def pid(self) -> int:
        """The container's first process, as this machine counts."""
        return int(self._pid_file.read_text())

    def command(self, words: Sequence[str]) -> list[str]:
        """Another command in the container, as `kubectl exec`, probes and hooks start it."""
        return [ENGINE, "exec", self._name, *words]

    def send(self, signal: str) -> None:
        """Send a signal to its first process, which only SIGKILL ends without a handler."""
        self._start.wait()
        subprocess.run([ENGINE, "kill", f"--signal={signal}", self._name], capture_output=True)  # it may have ended

    def remove(self) -> None:
        """Kill all its processes, and remove it."""
        self._start.wait()
        subprocess.run([ENGINE, "rm", "--force", "--time=0", self._name], check=True, capture_output=True)


def engine_options(namespace: str, context: Manifest, limits: Manifest) -> list[str]:
    """The engine's options for names, a security context, and limits of CPUs ("2", "500m") and memory."""
    capabilities, cores = context.get("capabilities", {}), str(limits.get("cpu", "0"))
    return [
        *(f"--dns={NAME_SERVER}", "--dns-option=ndots:5"),
        *(f"--dns-search={domain}" for domain in (f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN)),
        *([f"--user={context['runAsUser']}:{context.get('runAsGroup', 0)}"] if "runAsUser" in context else []),
        *([f"--group-add={context['fsGroup']}"] if "fsGroup" in context else []),
        *(f"--cap-drop={name}" for name in capabilities.get("drop", [])),
        *(f"--cap-add={name}" for name in capabilities.get("add", [])),
        *([] if context.get("allowPrivilegeEscalation", True) else ["--security-opt=no-new-privileges"]),
        *(["--read-only", "--read-only-tmpfs=false"] if context.get("readOnlyRootFilesystem") else []),
        f"--cpus={int(cores[:-1]) / 1000 if cores.endswith('m') else cores}",
        f"--memory={limits.get('memory', 0)}",
    ]


def read_log(path: Path) -> str:
    """The text of a log, in which each line begins with a time, a stream, and F, or P before the rest of a line."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return re.sub(r"(?m)^\S+ std(?:out|err) (?:F (.*\n)|P (.*)\n)", r"\1\2", text)

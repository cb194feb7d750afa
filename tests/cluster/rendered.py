"""A run whose rendered manifests a cluster executes: rendered, applied and watched as a user would do it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.executor.cluster import IMAGE, Cluster
from tests.cluster.executor.manifests import files_of
from tests.cluster.executor.pods.pod import Pod

CHECKOUT = Path(__file__).resolve().parents[2]
#: Labels of the run's pods.
ROLE = "app.kubernetes.io/name={}"


class RenderedRun:
    """A run in a cluster.

    Args:
        cluster: Whose namespace is the run's.
        preset: What is trained; the run has its name.
    """

    def __init__(self, cluster: Cluster, preset: str) -> None:
        self.cluster, self.preset = cluster, preset
        self.folder = cluster.claim("runs") / preset
        #: Everything that its Secrets hold.
        self.secrets: list[str] = []

    def apply(self, *options: str) -> None:
        """Do what docs/kubernetes.md tells: make the secrets, render and apply."""
        tls = [option for option in options if option == "--tls"]
        for arguments in (("secret", self.preset, *tls), ("render", self.preset, "--image", IMAGE, *options)):
            command = [sys.executable, "-m", "surreal", "k8s", *arguments]
            done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            self.cluster.apply(done.stdout)
            for each in filter(None, yaml.safe_load_all(done.stdout)):
                if each["kind"] == "Secret":
                    self.secrets += [content.decode() for content in files_of(each).values()]

    def pods(self, role: str) -> list[Pod]:
        """The pods of a role, oldest first."""
        return self.cluster.pods(ROLE.format(role))

    def health(self, pod: Pod) -> str:
        """What a pod's process says of itself; empty while it does not run."""
        try:
            return self.cluster.execute(pod, "surreal", "health", "--probe", "startup").stdout.strip()
        except ProcessLookupError:
            return ""

    def rounds(self) -> list[dict[str, Any]]:
        """The evaluation's rounds so far."""
        path = self.folder / "eval" / "scores.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        entries = (json.loads(line) for line in lines if line.endswith("\n"))
        return [entry for entry in entries if entry["kind"] == "round"]

    def result(self) -> dict[str, Any]:
        """How the run has ended; empty while it goes on, perhaps with a learner that has been interrupted."""
        path = self.folder / "result.json"
        result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return result if result.get("status") in ("finished", "failed") else {}

    def report(self) -> str:
        """What happened to its pods, and how it ended."""
        texts = [f"{at:8.1f} s  {text}" for at, text in self.cluster.events]
        rounds = [f"round {entry['round']}: {entry['mean_return']:.1f}" for entry in self.rounds()]
        restarts = sum(" ended with status" in text for text in texts)
        summary = f"{len(rounds)} rounds, {restarts} ends of containers, result {json.dumps(self.result())}"
        return "\n".join([*texts, ", ".join(rounds), summary, ""])


@contextmanager
def rendered_run(
    cluster: Cluster, preset: str, settings: Sequence[str], report: Path, *options: str
) -> Iterator[RenderedRun]:
    """A run that has been applied; what happened to it is written into a file, whatever happens."""
    run = RenderedRun(cluster, preset)
    try:
        run.apply("--overlay", "local", *options, *(f"--set={setting}" for setting in settings))
        yield run
    finally:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(run.report())

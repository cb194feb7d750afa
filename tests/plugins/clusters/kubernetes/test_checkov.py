"""checkov finds nothing in the manifests but what k8s/checkov.yaml says, with a reason for each exception."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.peers import Requirement, find_python
from surreal.plugins.clusters.kubernetes.manifest import write_manifests
from surreal.plugins.clusters.kubernetes.rendering import Request, render
from tests.manifests import BASE, K8S, OVERLAYS, build

CHECKOV = Requirement("checkov", ["checkov==3.3.30"])


@pytest.mark.skipif(not os.environ.get("SURREAL_TEST_CLUSTER"), reason="takes minutes: make cluster")
@pytest.mark.timeout(900)  # installing it may take minutes, once
def test_checkov_finds_nothing(tmp_path: Path, require_tool: Callable[..., str]) -> None:
    kubectl = require_tool("kubectl")
    python = find_python(CHECKOV)
    assert isinstance(python, Path), python
    folder = tmp_path / "manifests"
    folder.mkdir()
    for each in (BASE, *OVERLAYS):
        (folder / f"{each.name}.yaml").write_text(write_manifests(build(each, kubectl)))
    rendered = render(Request("cartpole-rlx", "registry.example/surreal:7", agents=2), lambda sentence: None)
    (folder / "rendered.yaml").write_text(write_manifests(rendered))
    # What it would find if it were there.
    open_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "open", "namespace": "open"}}
    container = {"name": "open", "image": "open:1", "securityContext": {"privileged": True}}
    (folder / "open.yaml").write_text(write_manifests([{**open_pod, "spec": {"containers": [container]}}]))
    command = [python, python.with_name("checkov"), "-d", folder, "--config-file", K8S / "checkov.yaml"]
    offline = ["--skip-download", "--skip-results-upload"]
    # Tests may have their folders below a hidden one.
    environment = {**os.environ, "CKV_IGNORE_HIDDEN_DIRECTORIES": "false"}
    done = subprocess.run([*map(str, command), *offline], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert 'Check: CKV_K8S_16: "Container should not be privileged"' in done.stdout
    failed = {line.strip() for line in done.stdout.splitlines() if line.startswith("\tFAILED")}
    assert failed == {"FAILED for resource: Pod.open.open"}, done.stdout

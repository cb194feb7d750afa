"""Clusters for tests.

start_cluster   factory of clusters, which end with the test; takes the arguments of `Cluster` by name
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.executor.cluster import IMAGE, Cluster

#: What clusters need, with the Debian packages.
_PROGRAMS = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux", "podman": "podman", "setpriv": "util-linux"}


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Factory of clusters for `make cluster`; without what they need, fail in CI (CI=true) and skip elsewhere."""
    if not os.environ.get("SURREAL_TEST_CLUSTER"):
        pytest.skip("for `make cluster`, after `make image`")
    missing = _missing()
    if missing is not None:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"{missing}; CI has to have it")
        pytest.skip(f"{missing}; CI=true would fail here")
    clusters: list[Cluster] = []

    def start(**options: object) -> Cluster:
        clusters.append(Cluster(tmp_path / f"cluster-{len(clusters)}", **options))  # type: ignore[arg-type]
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.close()


def _missing() -> str | None:
    """What a cluster lacks here, if anything."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "clusters have network namespaces, for which the tests would have to run as root"
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed; it comes with Debian's {package}"
    for needed in (["unshare", "--net", "nft", "list", "tables"], ["podman", "image", "exists", IMAGE]):
        done = subprocess.run(needed, capture_output=True, text=True)
        if done.returncode:
            return f"{' '.join(needed)} failed: {done.stderr.strip() or 'run `make image` first'}"
    return None

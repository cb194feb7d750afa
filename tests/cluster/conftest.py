"""Clusters for tests.

start_cluster   factory of clusters, which end with the test; takes the arguments of `Cluster` by name
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.executor.cluster import Cluster
from tests.cluster.executor.processes import PROGRAMS, program


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Factory of clusters; without what they need, fail in CI (CI=true) and skip elsewhere."""
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
    """Say what an executor would miss here, if anything."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "clusters are made of namespaces, for which the tests would have to run as root"
    try:
        for name in PROGRAMS:
            program(name)
    except FileNotFoundError as error:
        return str(error)
    inside = [program("unshare"), "--pid", "--net", "--mount", "--fork", program("nft"), "list", "tables"]
    made = subprocess.run(inside, capture_output=True, text=True)
    return f"no namespaces with nftables here: {made.stderr.strip()}" if made.returncode else None

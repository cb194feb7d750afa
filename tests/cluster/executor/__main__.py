"""Execute manifests from standard input until Ctrl-C, and tell what happens.

    kubectl kustomize OVERLAY | python -m tests.cluster.executor FOLDER

FOLDER is made, and keeps the pods' logs and volumes.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from tests.cluster.executor.cluster import Cluster


def main(folder: Path, manifests: str) -> None:
    with Cluster(folder) as cluster, contextlib.suppress(KeyboardInterrupt):
        cluster.apply(manifests)
        told = 0
        while True:
            cluster.go_on(0.5)
            for at, text in cluster.events[told:]:
                sys.stdout.write(f"{at:8.1f} s  {text}\n")
                told += 1
            sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.stdin.read())

"""An RLX server in a process of its own, with a limit of open files: `python -m tests.attack.rlx_server FILES [TOKEN]`.

It prints its port, and serves until its standard input ends; then it prints the metrics of the server.
"""

from __future__ import annotations

import json
import logging
import resource
import sys

from surreal.rlx.pool.pool import RlxEnvPool
from tests.integration.rlx.conftest import SPACE, TWO, Harness


def main() -> None:
    files, token = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    logging.basicConfig(level=logging.INFO)
    sys.setswitchinterval(0.0005)  # as `surreal rlx-server` has it
    served = Harness(RlxEnvPool(TWO, SPACE), token=token)
    sys.stdout.write(f"{served.port}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"{json.dumps(served.server.metrics())}\n")
        sys.stdout.flush()
        served.rows.clear()
    served.close()


if __name__ == "__main__":
    main()

"""Environments driven by an RLX server: `python scripts/run_rlx_client.py CartPole-v1 --server HOST:PORT --envs 4`."""

import sys

from surreal.run.roles.rlx_client import main

if __name__ == "__main__":
    sys.exit(main())

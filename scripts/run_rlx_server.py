"""An RLX server of a run, from a configuration: `python scripts/run_rlx_server.py cartpole-rlx --redis HOST:PORT`."""

import sys

from surreal.run.roles.rlx_server import main

if __name__ == "__main__":
    sys.exit(main())

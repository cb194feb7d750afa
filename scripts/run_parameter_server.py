"""A parameter server of a run: `python scripts/run_parameter_server.py cartpole-a3c --redis HOST:PORT`."""

import sys

from surreal.run.roles.parameter_server import main

if __name__ == "__main__":
    sys.exit(main())

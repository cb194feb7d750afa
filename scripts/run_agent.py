"""One agent of a run, from a configuration: `python scripts/run_agent.py cartpole-dqn --redis HOST:PORT`."""

import sys

from surreal.run.roles.agent import main

if __name__ == "__main__":
    sys.exit(main())

"""The learner of a run, from a configuration: `python scripts/run_learner.py cartpole-dqn --redis HOST:PORT`."""

import sys

from surreal.run.roles.learner import main

if __name__ == "__main__":
    sys.exit(main())

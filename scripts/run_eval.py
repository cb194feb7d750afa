"""The evaluation of a run, from a configuration: `python scripts/run_eval.py cartpole-dqn --redis HOST:PORT`."""

import sys

from surreal.run.roles.eval import main

if __name__ == "__main__":
    sys.exit(main())

"""Environment pools: what an agent drives, in this process or in worker processes. `base.py` has the contract."""

"""Self-play: a policy that learns against its own past. Knows agents, environments and Redis, but no learner.

league.py      past versions with their ratings (Elo): which are kept, and which one is played against
exchange.py    the league in Redis: its versions' parameters, its table, and the results of games
keeper.py      the learner's end: keeps the league
opponents.py   the agents' end: plays for past versions in the environment pool
"""

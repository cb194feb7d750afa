"""Games of several players: the interface, PettingZoo's games, and views of one player; `make.py` finds games by id."""

"""Commands for runs that were started elsewhere or are over: look at them, watch, play, compare, delete; replays."""

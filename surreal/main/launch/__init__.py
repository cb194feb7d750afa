"""The launcher, `surreal run`: everything of a run on this machine, from its own Redis to its result."""

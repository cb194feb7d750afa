"""The launcher, `surreal run`: starts and watches everything that a run needs on this machine."""

"""Parameters: published by one learner, followed by every agent. It knows only `connection`."""

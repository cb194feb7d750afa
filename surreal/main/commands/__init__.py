"""The other commands: they look at runs, play policies, move replays to files and back, serve Redis."""

"""Commands that are not the launcher's: find and show runs, play policies, serve Redis."""

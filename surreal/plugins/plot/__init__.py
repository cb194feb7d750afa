"""`surreal plot`: learning curves of runs as a picture in a file."""

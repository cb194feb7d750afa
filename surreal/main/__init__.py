"""One module for each kind of process, the frame they share, and `build.py`: from configuration to objects."""

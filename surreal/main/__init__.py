"""One module for each kind of process, the frame they share (`process.py`), and `build.py`: configuration to objects."""

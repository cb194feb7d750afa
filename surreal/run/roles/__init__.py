"""One module for each role: the main function of its process."""

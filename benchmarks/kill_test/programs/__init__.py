"""What each system runs; each file is started in that system's own virtual environment."""

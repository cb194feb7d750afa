"""The programs of the systems; each file is started in that system's virtual environment."""

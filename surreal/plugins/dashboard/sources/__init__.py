"""The dashboard's data of runs, from folders and from Redis, shared by all open pages."""

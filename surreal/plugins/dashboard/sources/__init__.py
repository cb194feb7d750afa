"""What the dashboard knows of runs, from folders and from Redis, shared by all open pages."""

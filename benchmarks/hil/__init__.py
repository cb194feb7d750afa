"""A robot arm that learns to lift a cube from demonstrations and a scripted teacher, while its processes are killed."""

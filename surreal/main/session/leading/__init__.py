"""What the process that leads a run does beside its work: the run's folder, its configuration, its result."""

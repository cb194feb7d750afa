"""What the process that leads a run does beside its work: the run's folder, logs, metrics, scores, the result."""

"""Files, threads, processes, logs and memory of this machine."""

"""Files, threads, processes, logs and memory of the machine that a process runs on."""

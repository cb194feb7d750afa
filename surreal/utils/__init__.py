"""Small helpers that several parts need: torch modules, supervised threads, queues, memory, logs."""

"""How steps leave a process: collected in a row log, cut into chunks, kept in an outbox until acknowledged."""

"""How steps leave a process: gathered in a row log, cut into chunks, kept in an outbox until they are acknowledged."""

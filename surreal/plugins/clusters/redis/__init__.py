"""`surreal redis`: a server for runs on several machines, with users and certificates."""

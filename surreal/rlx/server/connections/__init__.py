"""A server's connections: netstrings over TCP, WebSocket, and plain HTTP, all on one port. They know the hub."""

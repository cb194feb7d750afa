"""The connections of a server: netstrings over TCP, WebSocket, and plain HTTP on the same port. They know the hub."""

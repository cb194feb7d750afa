"""The protocol as bytes: no torch, no Redis, no sockets, no asyncio. Clients and servers import it."""

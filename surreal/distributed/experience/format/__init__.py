"""The bytes of a chunk: pure functions, no client and no clock. Imported by senders, readers and archives."""

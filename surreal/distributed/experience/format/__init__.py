"""The bytes of a chunk: pure, no client and no clock. Imported by senders, readers and archives."""

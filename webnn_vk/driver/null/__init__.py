"""A driver without a device: it keeps memory, moves bytes, and says what it would dispatch."""

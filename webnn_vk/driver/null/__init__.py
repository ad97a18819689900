"""A driver without a device: it allocates memory, copies bytes and prints the dispatches."""

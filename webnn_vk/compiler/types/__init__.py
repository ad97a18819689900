"""Data types, descriptors, and checks of the buffers and arrays that callers give. Imports only
`support/`."""

"""The context timeline: ordered work on a device, and the memory it works on; CPU engines, tuning,
and the state of contexts and tensors. Imports `compiler/` and the folders below it."""

"""Compile-only devices: Mesa's RADV compiles for chips that the machine does not have, and runs
nothing. Only `webnn_vk.codegen.isa` (by a process), benchmarks and tests use it."""

"""What stands on top of the library: the command line, the demo and the build's SPIR-V pack."""

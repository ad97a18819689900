"""What stands on top of the library: the command line, the demo and the build's SPIR-V pack."""


class ToolError(Exception):
    """A tool can't go on with what it was given; the message is one line for the user."""

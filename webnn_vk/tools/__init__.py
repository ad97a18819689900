"""What stands on top of the library: the command line, the demo and the build's SPIR-V pack. May
import every other folder, and `examples/`."""

from webnn_vk.support import packages


class ToolError(Exception):
    """A tool can't go on with what it was given. The message is one line for the user; ``lines``
    are printed below it as they are: what a compiler says of a source."""

    def __init__(self, message: str, lines: str = "") -> None:
        super().__init__(message)
        self.lines = lines


def need(what: str, *features: str) -> None:
    """`ToolError` that names all packages that are missing for features of `packages`, and how to
    install them, before anything is done. ``what``: "--chart needs"."""
    problem = packages.problem(what, *features)
    if problem:
        raise ToolError(problem)

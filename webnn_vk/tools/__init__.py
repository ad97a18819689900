"""Programs on top of the library: the command line, the demos and the shader archive of the wheel.
May import every other folder, and `examples/`."""

from webnn_vk.support import packages


class ToolError(Exception):
    """An error for the user of a tool: one line, and ``lines`` that are printed below it as they
    are (the messages of a compiler)."""

    def __init__(self, message: str, lines: str = "") -> None:
        super().__init__(message)
        self.lines = lines


def need(what: str, *features: str) -> None:
    """Raises `ToolError` where packages for features of `packages` are missing. It names all of
    them and says how to install them. ``what``: "--chart needs"."""
    problem = packages.problem(what, *features)
    if problem:
        raise ToolError(problem)

"""Programs in files without shaders, for tests that make the shaders again."""

from pathlib import Path
from typing import Any

from webnn_vk.compiler.program import Constants, Program
from webnn_vk.compiler.program.serial import Fetch, save


def not_read(storage: Any) -> Any:
    raise AssertionError("no constant is a tensor here")


def save_program(
    program: Program, constants: Constants, folder: Path, fetch: Fetch = not_read
) -> None:
    """Write a program, with an empty module for each kernel."""
    save(program, constants, folder, fetch, dict.fromkeys(program.kernels, b""))

"""Makes the pack of precompiled SPIR-V; called by the wheel build (setup.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from webnn_vk import kernels
from webnn_vk.codegen.pack import build_pack

FILE_NAME = "pack.bin"


def main(arguments: Sequence[str]) -> int:
    """Write pack.bin into the folder named by the one argument."""
    (folder,) = arguments
    build_pack(kernels.catalogue(), Path(folder) / FILE_NAME)
    return 0

"""The modules that become pipelines, for people and tests: ``WEBNN_VK_DUMP_SPIRV``."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from webnn_vk.support import environment


def dump_spirv(code: bytes) -> None:
    """Writes a module into the folder ``WEBNN_VK_DUMP_SPIRV``, when set, as <sha256>.spv."""
    folder = environment.text("WEBNN_VK_DUMP_SPIRV")
    if not folder:
        return
    path = Path(folder, hashlib.sha256(code).hexdigest() + ".spv")
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    import tempfile

    descriptor, temporary = tempfile.mkstemp(dir=folder)
    with open(descriptor, "wb") as file:
        file.write(code)
    os.replace(temporary, path)

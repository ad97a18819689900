"""Programs of this environment on the software driver of a newer Mesa, which scripts/install-chips
lays down. The driver needs a newer C library than the machine may have: its own loader starts the
interpreter."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

from webnn_vk.codegen.isa import chips

from .chips import missing as missing_chips

_MARK = "WEBNN_VK_TEST_NEWER_MESA"
_TRIPLE = "x86_64-linux-gnu"


def missing() -> str | None:
    """Why it can't be used, or None."""
    def why() -> str | None:
        if (_root() / "done").is_file():
            return None
        return f"Mesa 26 is not in {chips.folder()} (scripts/install-chips)"

    return missing_chips(why)


def _root() -> Path:
    return chips.folder().absolute() / "trixie-backports" / "amd64"


def _libraries() -> Path:
    return _root() / "usr/lib" / _TRIPLE


def runs_this() -> bool:
    """Whether this process was started by `command`."""
    return _MARK in os.environ


def command(folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The words and the environment that run Python with arguments. ``folder``: for the driver's
    manifest. The Khronos layer of the same release is used, if it was laid down."""
    libraries = _libraries()
    manifest = folder / "lavapipe.json"
    manifest.write_text(
        '{"file_format_version": "1.0.0", "ICD": {"api_version": "1.4.305", "library_path": "%s"}}'
        % (libraries / "libvulkan_lvp.so"), encoding="utf-8",
    )
    layers = _root() / "usr/share/vulkan/explicit_layer.d"
    # The interpreter finds its virtual environment by its path, which the loader replaces.
    path = os.pathsep.join([*site.getsitepackages(), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ, "VK_ICD_FILENAMES": str(manifest), "VK_DRIVER_FILES": str(manifest),
        "VK_LAYER_PATH": str(layers), "WEBNN_VK_VALIDATE": str(int(layers.is_dir())),
        "WEBNN_VK_DEVICE": "llvmpipe", "PYTHONPATH": path, _MARK: "1",
    }
    own = f"/usr/lib/{_TRIPLE}:/lib/{_TRIPLE}"
    return [
        str(_root() / "lib64/ld-linux-x86-64.so.2"), "--argv0", sys.executable,
        "--library-path", f"{libraries}:{own}", str(Path(sys.executable).resolve()), *arguments,
    ], environment

"""Vulkan drivers that fail on request: a real driver and `fake_icd.c`, which a C compiler turns
into a library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("fake_icd.c")


def real_manifest() -> Path:
    """The manifest of the software driver (lavapipe); skips the test if there is none."""
    given = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES") or ""
    folders = [Path("/etc/vulkan/icd.d"), Path("/usr/share/vulkan/icd.d")]
    candidates = [Path(name) for name in given.split(os.pathsep) if name]
    candidates += [path for folder in folders for path in sorted(folder.glob("lvp_icd*.json"))]
    for path in candidates:
        if path.is_file() and "lvp" in path.name:
            return path
    pytest.skip("no lavapipe on this machine")


class FakeDrivers:
    """Makes drivers in a folder, one library each, because the loader distinguishes them by their
    files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.real = real_manifest()
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("no C compiler on this machine")
        self._library = folder / "fake.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self._library, _SOURCE, "-ldl"],
                       check=True)

    def make(self, title: str, **said: object) -> Path:
        """The manifest of a driver called ``title``; ``said``: lines of its file."""
        library = self.folder / f"libfake_{title}.so"
        shutil.copy(self._library, library)
        about = json.loads(self.real.read_text())
        base = self.real.parent / about["ICD"]["library_path"] if "/" in (
            about["ICD"]["library_path"]) else about["ICD"]["library_path"]
        lines = {"base": base, "name": title, **said}
        Path(f"{library}.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in lines.items()))
        about["ICD"]["library_path"] = str(library)
        manifest = self.folder / f"{title}_icd.json"
        manifest.write_text(json.dumps(about))
        return manifest

    @staticmethod
    def variables(*manifests: Path) -> dict[str, str]:
        """Environment variables that make the loader use these drivers."""
        names = os.pathsep.join(map(str, manifests))
        return {"VK_DRIVER_FILES": names, "VK_ICD_FILENAMES": names}

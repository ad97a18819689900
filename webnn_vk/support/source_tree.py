"""Imports in a clone, where `codegen/`, `examples/` and `shaders/` lie beside the package; once
installed they lie inside it. In a clone's folder its `webnn_vk/` comes before an installed one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

#: Folders of the checkout that are packages below webnn_vk; setup.py has the same.
FOLDERS = ("codegen", "examples", "shaders")
#: The file that marks the folder above the package as a checkout or an unpacked source archive.
MARKERS = ("pyproject.toml", "codegen/__init__.py", "shaders/__init__.py")


class _Finder:
    def __init__(self, package: str, folder: str) -> None:
        self.folder = folder
        root = os.path.dirname(os.path.abspath(folder))
        self._folders = {f"{package}.{name}": os.path.join(root, name) for name in FOLDERS}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = self._folders.get(fullname)
        # The package may have been removed from sys.modules and imported from elsewhere since.
        if found is None or self.folder not in (path or ()):
            return None
        return spec_from_file_location(
            fullname, os.path.join(found, "__init__.py"), submodule_search_locations=[found]
        )


def find_folders(package: str, folder: str) -> None:
    """Lets the import system find `FOLDERS` below a package whose modules are in a folder, where
    that folder lies in a checkout. Nothing else of the checkout becomes importable."""
    root = os.path.dirname(os.path.abspath(folder))
    if not all(os.path.isfile(os.path.join(root, marker)) for marker in MARKERS):
        return
    # Before the finder of an editable installation, which may belong to another checkout.
    if not any(getattr(finder, "folder", None) == folder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(package, folder))

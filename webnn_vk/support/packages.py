"""The packages that parts of the library need beside its dependencies, and messages that name all
missing ones with the command that installs them. Imports nothing of the package."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec

#: Feature → the extra that installs its packages, and the modules that it imports.
FEATURES = {
    "onnx": ("onnx", ("onnx", "ml_dtypes")),
    "cpu": ("cpu", ("onnx", "onnxruntime")),
    "low-precision": ("onnx", ("ml_dtypes",)),
    "weights": ("webnn", ("safetensors",)),
    "pictures": ("pictures", ("fast_sugiyama",)),
    "wgpu": ("wgpu", ("wgpu",)),
    "generation": ("generate", ("safetensors", "tokenizers")),
    "gguf": ("generate", ("gguf",)),
    "search": ("demo", ("safetensors", "tokenizers")),
    "reading": ("demo", ("onnx", "ml_dtypes", "PIL")),
    "bridge": ("bridge", ("cbor2",)),
    "ray": ("ray", ("ray", "pyarrow")),
    "spark": ("spark", ("pyspark", "pyarrow", "pandas")),
    "charts": ("bench", ("matplotlib",)),
    "site": ("docs", ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers.python",
                      "onnx", "ml_dtypes", "safetensors", "tokenizers")),
}
#: Packages whose names differ from their modules'.
_PACKAGES = {
    "PIL": "pillow", "fast_sugiyama": "fast-sugiyama", "material": "mkdocs-material",
    "mkdocstrings_handlers.python": "mkdocstrings-python",
}


class MissingPackages(ImportError):
    """Packages of extras are not installed; the message names them and the command."""


def package_of(module: str) -> str:
    """The name by which pip installs a module."""
    return _PACKAGES.get(module, module)


def missing(features: Iterable[str]) -> list[str]:
    """The packages that features lack, by pip's names. Nothing is imported."""
    modules = dict.fromkeys(module for f in features for module in FEATURES[f][1])
    return [package_of(module) for module in modules if not _is_there(module)]


def _is_there(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # its parent package is missing
        return False


def problem(what: str, *features: str) -> str:
    """``what`` ("exporting needs") and the packages that are missing for features, with the command
    that installs all of them; "" if none is missing."""
    names = missing(features)
    if not names:
        return ""
    *others, last = names
    listed = f"packages {', '.join(others)} and {last}" if others else f"package {last}"
    return f"{what} the {listed}: {command(features)}"


def command(features: Iterable[str]) -> str:
    """The command that installs the packages that features lack."""
    extras = dict.fromkeys(FEATURES[f][0] for f in features if missing([f]))
    return f"pip install 'webnn_vk[{','.join(extras)}]'"


def require(what: str, *features: str) -> None:
    """Raises `MissingPackages` with the `problem`, if there is one."""
    text = problem(what, *features)
    if text:
        raise MissingPackages(text)

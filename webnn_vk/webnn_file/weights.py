"""The tensors beside a ``.webnn`` file: mapped into memory, checked by the safetensors package."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.support import packages
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize
from webnn_vk.support.mmap_array import drop_pages, mapped_file

from .errors import GraphFileError
from .names import SHORT_TYPES

_SUFFIX = ".safetensors"
_DEFAULT = f"model{_SUFFIX}"
_HEADER_LENGTH = 8
#: safetensors' names for data types are the text's in capitals; BF16 may stand for float32.
_BRAIN = "BF16"
_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2,
    _BRAIN: 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}


def _package() -> Any:
    packages.require("weights in files need", "weights")
    import safetensors

    return safetensors


def find(path: Path, given: str | os.PathLike[str] | None) -> Path | None:
    """The file with the weights of the graph at ``path``: what is given, relative to the graph's
    folder, or else the first that there is of ``NAME.safetensors`` and ``model.safetensors``.
    What is found, not given, has to be a plain file in that folder."""
    if given is not None:
        return path.parent / given
    folder = path.parent.resolve()
    for candidate in (path.with_suffix(_SUFFIX), path.with_name(_DEFAULT)):
        if not os.path.lexists(candidate):
            continue
        try:
            inside = candidate.resolve(strict=True).is_relative_to(folder)
        except (OSError, RuntimeError):
            raise GraphFileError(f"{sanitize(candidate.name)}: a link to nothing") from None
        if not inside or not candidate.is_file():
            raise GraphFileError(
                f"{sanitize(candidate.name)} is outside of the graph's folder or no plain file; "
                "refused (weights=… takes a file from anywhere)"
            )
        return candidate
    return None


@dataclass(frozen=True)
class _Entry:
    data_type: str
    shape: tuple[int, ...]
    start: int
    end: int


class Archive:
    """A file of tensors. GraphFileError where it is damaged; its bytes have to stay as they are
    for as long as anything made of them lives."""

    def __init__(self, path: Path) -> None:
        self._name = sanitize(path.name)
        self._entries: dict[str, _Entry] = {}
        package = _package()
        try:
            if not path.is_file():
                raise GraphFileError(f"{self._name}: no plain file")
            self._data = mapped_file(path)
            # The package checks the header: tensors one after the other, without holes, each as
            # long as its shape says, up to the end of the file.
            with package.safe_open(path, framework="numpy") as opened:
                header = self._data[:_HEADER_LENGTH].tobytes()
                at = _HEADER_LENGTH + int.from_bytes(header, "little")
                for name in opened.offset_keys():
                    entry = opened.get_slice(name)
                    data_type, shape = entry.get_dtype(), tuple(entry.get_shape())
                    if data_type not in _SIZES:
                        raise GraphFileError(
                            f"{self._name}: tensor {sanitize(name)!r} is {sanitize(data_type)}; "
                            f"one of {', '.join(_SIZES)} is expected"
                        )
                    end = at + math.prod(shape) * _SIZES[data_type]
                    self._entries[name] = _Entry(data_type, shape, at, end)
                    at = end
        except package.SafetensorError as error:
            raise GraphFileError(
                f"{self._name} is no safetensors file: {sanitize(str(error))[:200]}"
            ) from None
        except OSError as error:
            raise GraphFileError(f"{self._name} can't be read: {error.strerror}") from None
        if at != self._data.size:
            raise GraphFileError(f"{self._name} changed while it was read")
        self._like: dict[str, list[str]] = {}
        for name in self._entries:
            self._like.setdefault(_normal(name), []).append(name)

    def view(self, name: str, descriptor: MLOperandDescriptor) -> np.ndarray:
        """The tensor's elements, read-only, where they lie in the file; BF16 is widened."""
        entry = self._entry(name)
        wanted = SHORT_TYPES[descriptor.data_type].upper()
        brain = entry.data_type == _BRAIN and wanted == "F32"
        if (entry.data_type != wanted and not brain) or entry.shape != descriptor.shape:
            raise GraphFileError(
                f"tensor {sanitize(name)!r} of {self._name} is {entry.data_type} "
                f"{list(entry.shape)[:16]}, the graph has {descriptor}"
            )
        return self._elements(entry, descriptor.numpy_dtype)

    def release(self) -> None:
        """Take what was read out of the resident memory. It is read again when needed."""
        drop_pages(self._data)

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._entries)

    def floats(self, name: str) -> np.ndarray:
        """A tensor of floats, read-only, where it lies in the file; BF16 is widened to float32."""
        entry = self._entries[name]
        kinds = {"F32": "<f4", "F16": "<f2", _BRAIN: "<f4"}
        if entry.data_type not in kinds:
            raise GraphFileError(
                f"tensor {sanitize(name)!r} of {self._name} is {entry.data_type}; one of "
                f"{', '.join(kinds)} is expected"
            )
        return self._elements(entry, np.dtype(kinds[entry.data_type]))

    def _elements(self, entry: _Entry, kind: np.dtype) -> np.ndarray:
        """A tensor's elements of this type, to which BF16 is widened."""
        stored = self._data[entry.start : entry.end]
        is_brain = entry.data_type == _BRAIN
        array = _widened(stored.view("<u2")) if is_brain else stored.view(kind)
        array = array.reshape(entry.shape)
        array.setflags(write=False)
        return array

    def _entry(self, name: str) -> _Entry:
        if name in self._entries:
            return self._entries[name]
        like = self._like.get(_normal(name), [])
        if len(like) != 1:
            what = f"has {len(like)} that resemble it" if like else "has none like it"
            raise GraphFileError(f"{self._name} has no tensor {sanitize(name)!r}; it {what}")
        return self._entries[like[0]]


def _widened(brain: np.ndarray) -> np.ndarray:
    """BF16 numbers, given by their bits, as float32."""
    return (brain.astype(np.uint32) << 16).view(np.float32)


def _normal(name: str) -> str:
    """How the format's tools make identifiers of tensors' names."""
    return name.replace("::", "__").replace(".", "_")


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A file of tensors by name, whole or not at all."""
    _package()
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    replace(path, lambda temporary: save_file(contiguous, temporary))


def replace(path: Path, fill: Callable[[Path], Any]) -> None:
    """Have ``fill`` write a file beside ``path``, and put it in its place when it is complete."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        fill(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

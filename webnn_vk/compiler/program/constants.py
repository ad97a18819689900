"""What a program's constants are: references to their bytes, let go of once those are in place."""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class HostArray:
    """Elements in host memory, read-only and dense. Those of equal ``key`` are equal."""

    data: np.ndarray
    key: str | None = None


@dataclass(frozen=True, eq=False)
class TensorStorage:
    """The memory of a constant tensor, opaque here."""

    storage: Any


class MappedFile:
    """A file's bytes as they are now, and which file it is, as it was last written."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            self.identity = about.st_dev, about.st_ino, about.st_mtime_ns
            # An empty file can't be mapped.
            empty = not about.st_size
            self.data = np.empty(0, np.uint8) if empty else np.memmap(file, np.uint8, "r")


@dataclass(frozen=True)
class FileRange:
    """``length`` bytes of a file from ``offset`` on, which must not change meanwhile. ``mapped``:
    the file, where it is mapped already: then it may be gone from its folder."""

    path: Path
    offset: int
    length: int
    mapped: MappedFile | None = field(default=None, compare=False, repr=False)


Reference = HostArray | TensorStorage | FileRange


class Constants:
    """References by the numbers that a program gives its constants.

    What loads a program calls ``release`` for each constant as soon as its bytes are where they are
    needed; then nothing here keeps them alive, and asking for them again is a LookupError.
    """

    def __init__(self, references: Iterable[Reference] = ()) -> None:
        self._references: list[Reference | None] = list(references)

    def __len__(self) -> int:
        return len(self._references)

    def __getitem__(self, number: int) -> Reference:
        reference = self._references[number]
        if reference is None:
            raise LookupError(f"constant {number} was released after the program was set up")
        return reference

    def storage(self, number: int) -> Any:
        """The memory of the constant tensor that it is, or None."""
        reference = self[number]
        return reference.storage if isinstance(reference, TensorStorage) else None

    def shared(self, number: int) -> bool:
        """Whether other graphs may have the same elements on the device."""
        reference = self[number]
        return isinstance(reference, HostArray) and reference.key is not None

    def read(self, number: int) -> np.ndarray:
        """The bytes of a constant in host memory or in a file, which is mapped, not read: a flat
        uint8 array. TypeError for a constant tensor; ValueError when the file ends before."""
        reference = self[number]
        match reference:
            case HostArray(data):
                return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            case FileRange(path, offset, length, mapped):
                if mapped is not None:
                    return mapped.data[offset : offset + length]
                if offset + length > path.stat().st_size:
                    raise ValueError(f"constant {number}: {path} has no {offset}+{length} bytes")
                return np.memmap(path, np.uint8, "r", offset, (length,))
        raise TypeError(f"constant {number} is a constant tensor; its bytes are on the device")

    def identity(self, number: int) -> Any:
        """What tells this constant from others, for what is derived from it: an object that can be
        referred to weakly, or what is compared by value: the key that it was given; for a range of
        a file the range, and which file it is in, as it was last written."""
        match self[number]:
            case HostArray(data, key):
                return data if key is None else key
            case TensorStorage(storage):
                return storage
            case FileRange(path) as part:
                return part, (part.mapped or MappedFile(path)).identity

    def share(self, known: MutableMapping[str, np.ndarray]) -> list[np.ndarray]:
        """Refer to the bytes that ``known`` has under the keys of constants in host memory; those
        that it lacks are added. What is returned keeps them there, where references are weak."""
        kept = []
        for number, reference in enumerate(self._references):
            if isinstance(reference, HostArray) and reference.key is not None:
                data = reference.data
                kept.append(known.setdefault(reference.key, self.read(number)))
                same = kept[-1].view(data.dtype).reshape(data.shape)
                self._references[number] = HostArray(same, reference.key)
        return kept

    def release(self, number: int) -> None:
        """Let go of one constant. Calling it again does nothing."""
        self._references[number] = None

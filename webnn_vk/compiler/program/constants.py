"""References to the bytes of a program's constants, released once these are on the device."""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.mmap_array import mapped


@dataclass(frozen=True, eq=False)
class HostArray:
    """Elements in host memory, read-only and dense. Equal keys mean equal elements."""

    data: np.ndarray
    key: str | None = None


@dataclass(frozen=True, eq=False)
class TensorStorage:
    """The memory of a constant tensor, opaque here."""

    storage: Any


class MappedFile:
    """A file's current bytes, and its identity, which includes the time of the last write."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            self.identity = status.st_dev, status.st_ino, status.st_mtime_ns
            self.data = mapped(file)


@dataclass(frozen=True)
class FileRange:
    """``length`` bytes of a mapped file from ``offset`` on. The file may be deleted, but must not
    change while it is in use."""

    path: Path
    offset: int
    length: int
    mapped: MappedFile = field(compare=False, repr=False)


Reference = HostArray | TensorStorage | FileRange


class Constants:
    """References by the numbers that a program gives its constants.

    The loader of a program calls ``release`` for each constant when its bytes are in place. Then
    nothing here keeps them alive, and reading the constant again is a LookupError.
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
        """The memory of a constant tensor; None for other constants."""
        reference = self[number]
        return reference.storage if isinstance(reference, TensorStorage) else None

    def shared(self, number: int) -> bool:
        """Whether the constant may share device memory with other graphs."""
        reference = self[number]
        return isinstance(reference, HostArray) and reference.key is not None

    def read(self, number: int) -> np.ndarray:
        """The bytes of a constant in host memory or in a file: a flat uint8 array. TypeError for a
        constant tensor."""
        reference = self[number]
        match reference:
            case HostArray(data):
                return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            case FileRange(_, offset, length, mapped):
                return mapped.data[offset : offset + length]
        raise TypeError(f"constant {number} is a constant tensor; its bytes are on the device")

    def identity(self, number: int) -> Any:
        """The identity of this constant, for caches of data derived from it. It is an object that
        can be referred to weakly, or a value: the constant's key, or for a range of a file the
        range and the file's identity."""
        match self[number]:
            case HostArray(data, key):
                return data if key is None else key
            case TensorStorage(storage):
                return storage
            case FileRange() as part:
                return part, part.mapped.identity

    def share(self, known: MutableMapping[str, np.ndarray]) -> list[np.ndarray]:
        """Use the bytes that ``known`` has under the keys of constants in host memory, and add the
        missing ones. The arrays returned keep the entries of a weak mapping alive."""
        kept = []
        for number, reference in enumerate(self._references):
            if isinstance(reference, HostArray) and reference.key is not None:
                data = reference.data
                kept.append(known.setdefault(reference.key, self.read(number)))
                same = kept[-1].view(data.dtype).reshape(data.shape)
                self._references[number] = HostArray(same, reference.key)
        return kept

    def release(self, number: int) -> None:
        """Release one constant. Calling it again does nothing."""
        self._references[number] = None

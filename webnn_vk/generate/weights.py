"""The weights of a folder: safetensors files, mapped into memory."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.codegen.files import read_regular
from webnn_vk.support.errors import sanitize
from webnn_vk.webnn_file.errors import GraphFileError
from webnn_vk.webnn_file.weights import Archive

from .blocks import Blocks
from .errors import InvalidModelError

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
#: Files beside the weights are smaller than this. Tokenizers are the largest.
MAX_FILE_BYTES = 64 << 20


def read_file(path: Path) -> bytes:
    """A file beside the weights. InvalidModelError if it is missing or too large."""
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidModelError(
            f"{sanitize(path.name)} can't be read: {error.strerror}"
        ) from None


def read_json(path: Path) -> Any:
    """A JSON file. InvalidModelError if it is missing, damaged or too large."""
    return parsed_json(read_file(path), sanitize(path.name))


def parsed_json(data: bytes, name: str) -> Any:
    """The JSON of a file of this name. InvalidModelError if it is none."""
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidModelError(f"{name} is no JSON: {_short(error)}") from None


#: First parts of names are left out, since files have them or not.
_PREFIXES = ("model.", "transformer.")
#: Buffers that transformers stored, which a graph doesn't need.
_BUFFERS = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")


class Weights:
    """Tensors by name (``source.WeightSource``). ``spare``: those that files may have although the
    graph doesn't read them."""

    def __init__(self, folder: Path, spare: Collection[str] = ()) -> None:
        self._spare = frozenset(spare)
        self._archives: list[Archive] = []
        self._where: dict[str, tuple[Archive, str]] = {}
        self._used: set[str] = set()
        for file, wanted in _files(folder):
            try:
                archive = Archive(folder / file)
            except GraphFileError as error:
                raise InvalidModelError(str(error)) from None
            self._archives.append(archive)
            names = archive.names()
            missing = sorted(wanted - set(names)) if wanted else []
            if missing:
                raise InvalidModelError(
                    f"{sanitize(file)} lacks the tensor {sanitize(missing[0])[:200]!r}"
                )
            for name in names:
                short = next((name[len(p) :] for p in _PREFIXES if name.startswith(p)), name)
                if short in self._where:
                    raise InvalidModelError(f"tensor {sanitize(name)[:200]!r} is stored twice")
                self._where[short] = archive, name

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor's elements, read-only: float32, or float16 where they are stored so.
        InvalidModelError if it is missing, or has another shape or another data type."""
        if name not in self._where:
            raise InvalidModelError(f"the weights lack the tensor {name!r}")
        archive, stored = self._where[name]
        try:
            array = archive.floats(stored)
        except GraphFileError as error:
            raise InvalidModelError(str(error)) from None
        if array.shape != shape:
            raise InvalidModelError(
                f"tensor {sanitize(stored)[:200]!r} is {list(array.shape)[:16]}; {list(shape)} is "
                "expected"
            )
        self._used.add(name)
        return array

    def blocks(self, name: str, shape: tuple[int, int]) -> Blocks | None:
        """None: safetensors files have floats."""
        return None

    def release(self) -> None:
        """See ``WeightSource``."""
        for archive in self._archives:
            archive.release()

    def unused(self) -> Iterator[str]:
        """The tensors that nothing has read, although they could change the result."""
        known = self._used | self._spare
        return (n for n in self._where if n not in known and not n.endswith(_BUFFERS))


def _files(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """The files with weights, and the tensors that the index says are in each."""
    index = folder / _INDEX
    if not index.exists():
        if not (folder / _SINGLE).exists():
            raise InvalidModelError(
                f"{sanitize(folder.name)} has neither {_SINGLE} nor {_INDEX}"
            )
        yield _SINGLE, set()
        return
    content = read_json(index)
    where = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(where, dict) or not where:
        raise InvalidModelError(f"{_INDEX} has no weight_map")
    shards: dict[str, set[str]] = {}
    for name, file in where.items():
        # A shard is a plain file of the folder.
        if not isinstance(file, str) or file in (".", "..") or os.path.basename(file) != file:
            raise InvalidModelError(f"{_INDEX} names the file {sanitize(repr(file))[:200]}")
        shards.setdefault(file, set()).add(name)
    for file in sorted(shards):
        if not os.path.isfile(folder / file):  # not Path's, which raises for long names
            raise InvalidModelError(f"the shard {sanitize(file)[:200]} is missing")
        yield file, shards[file]


def _short(error: BaseException) -> str:
    return sanitize(" ".join(str(error).split()))[:200]

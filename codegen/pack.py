"""A pack: many SPIR-V modules in one file, found by key, read lazily through mmap.

Layout (little-endian): header, index, JSON about the build, zlib dictionary, data. The index is
sorted by key and protected by a hash, each module by its own; anything wrong is a PackError or, for
one module, a miss. The wheel carries one at `PACK_PATH`.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import spirv
from .spec import KernelSpec

#: Where an installed package has its pack.
PACK_PATH = Path(__file__).resolve().parent / "pack.bin"

_MAGIC = b"WNNVKPCK"
_VERSION = 1
# magic, version, modules, bytes of JSON, bytes of dictionary, hash of all between header and data
_HEADER = struct.Struct("<8sIIII32s")
# key, offset, bytes packed, bytes of SPIR-V, start of its SHA-256
_RECORD = struct.Struct("<32sQII16s")
_LARGEST = 64 << 20
_DICTIONARY_BYTES = 32 << 10


class PackError(ValueError):
    """The file is no pack, or a damaged one."""


@dataclass(frozen=True)
class PackStats:
    """Sizes in bytes."""

    path: Path
    modules: int
    size: int
    spirv_size: int
    compiler: str


class Pack:
    """An open pack: a read-only mapping from key (32 bytes) to SPIR-V."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises PackError when the file is missing, damaged or of another version."""
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise PackError(f"{self.path}: {error}") from None
        size = len(self._map)
        if size < _HEADER.size:
            raise PackError(f"{self.path}: {size} bytes are no pack")
        magic, version, self._count, about, words, digest = _HEADER.unpack_from(self._map)
        if magic != _MAGIC or version != _VERSION:
            raise PackError(f"{self.path}: no pack of version {_VERSION}")
        self._json = _HEADER.size + self._count * _RECORD.size
        self._words = self._json + about
        end = self._words + words
        if end > size or hashlib.sha256(self._map[_HEADER.size:end]).digest() != digest:
            raise PackError(f"{self.path}: the index is damaged")
        try:
            self._dictionary = zlib.decompress(self._map[self._words:end])
        except zlib.error as error:
            raise PackError(f"{self.path}: {error}") from None

    def __len__(self) -> int:
        return self._count

    @property
    def about(self) -> dict[str, Any]:
        """What the build recorded: compiler, sizes, templates."""
        return json.loads(self._map[self._json:self._words])

    def _find(self, key: bytes) -> tuple | None:
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            record = _RECORD.unpack_from(self._map, _HEADER.size + middle * _RECORD.size)
            if record[0] == key:
                return record
            if record[0] < key:
                low = middle + 1
            else:
                high = middle
        return None

    def __contains__(self, key: bytes) -> bool:
        return self._find(key) is not None

    def get(self, key: bytes) -> bytes | None:
        """The module, or None when it is not there or damaged."""
        record = self._find(key)
        if record is None:
            return None
        _, offset, packed, size, digest = record
        if size > _LARGEST or offset + packed > len(self._map):
            return None
        try:
            unpacker = zlib.decompressobj(zdict=self._dictionary)
            module = unpacker.decompress(self._map[offset:offset + packed], size)
        except zlib.error:
            return None
        if len(module) != size or hashlib.sha256(module).digest()[:16] != digest:
            return None
        return module

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        """(key, bytes packed, bytes of SPIR-V) of each module, by key."""
        for i in range(self._count):
            key, _, packed, size, _ = _RECORD.unpack_from(
                self._map, _HEADER.size + i * _RECORD.size
            )
            yield key, packed, size

    def close(self) -> None:
        """Unmaps the file."""
        self._map.close()


def write_pack(
    modules: Mapping[bytes, bytes], path: str | os.PathLike[str], about: Mapping[str, Any]
) -> PackStats:
    """Writes a pack of {key: SPIR-V}; the same modules give the same bytes."""
    ordered = sorted(modules.items())
    dictionary = _dictionary([module for _, module in ordered])
    about_json = json.dumps(
        {**about, "modules": len(ordered), "spirv_bytes": sum(len(m) for _, m in ordered)},
        sort_keys=True,
    ).encode()
    words = zlib.compress(dictionary, 9)
    offset = _HEADER.size + len(ordered) * _RECORD.size + len(about_json) + len(words)
    index, data = bytearray(), bytearray()
    for key, module in ordered:
        packer = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_DEFAULT_STRATEGY, dictionary)
        packed = packer.compress(module) + packer.flush()
        digest = hashlib.sha256(module).digest()[:16]
        index += _RECORD.pack(key, offset + len(data), len(packed), len(module), digest)
        data += packed
    checked = bytes(index) + about_json + words
    header = _HEADER.pack(
        _MAGIC, _VERSION, len(ordered), len(about_json), len(words),
        hashlib.sha256(checked).digest(),
    )
    path = Path(path)
    write_atomically(path, header + checked + bytes(data), mode=0o644)
    return PackStats(
        path, len(ordered), path.stat().st_size, sum(len(m) for _, m in ordered),
        str(about.get("compiler", "")),
    )


def _dictionary(modules: list[bytes]) -> bytes:
    """Modules of the middle sizes: they hold the prelude's code, which is most of any module."""
    by_size = sorted(modules, key=lambda module: (len(module), module))
    picked = by_size[len(by_size) // 8 :: max(1, len(by_size) // 8)]
    if not picked:
        return b""
    share = _DICTIONARY_BYTES // len(picked)
    return b"".join(module[:share] for module in picked)


def write_atomically(path: Path, data: bytes, mode: int) -> None:
    """The whole file or none: a temporary file in the same folder, then a rename."""
    import tempfile

    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def build_pack(
    specs: Iterable[KernelSpec], path: str | os.PathLike[str], compiler: Any = None
) -> PackStats:
    """Compiles every spec and writes the pack. Used by the wheel build.

    compiler: default what `find_compiler()` finds. Raises ShaderUnavailable without one, GlslError
    for GLSL that does not compile.
    """
    from .store import ShaderStore, address

    specs = list(specs)
    store = ShaderStore(None, pack=None, compiler=compiler or "default")
    modules = dict(zip(map(address, specs), store.get(specs), strict=True))
    for module in modules.values():
        spirv.info(module)
    about = {"compiler": store.compiler_version, "templates": sorted({s.template for s in specs})}
    return write_pack(modules, path, about)

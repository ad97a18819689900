"""The shader archive: many SPIR-V modules in one file, found by key or by name, read on demand
through mmap.

Layout (little-endian): header, index of modules (sorted by key), names of modules (sorted), table
of blocks, JSON about the build, blocks. A block is several modules compressed together, which
halves the size, as variants of one kernel are similar (LZMA, or zlib where Python lacks it). Hashes
protect the index and each module: a damaged index is an ArchiveError, a damaged module counts as
missing.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import json
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from webnn_vk.support import environment
from webnn_vk.support.dataclass import dataclass

from .files import open_regular, write_atomically

try:
    import lzma
except ImportError:  # an optional part of CPython
    lzma = None  # type: ignore[assignment]

#: The archive of an installed package.
ARCHIVE_PATH = Path(__file__).resolve().parent / "pack.bin"
_IN_WHEELS = "webnn_vk/codegen/pack.bin"

_MAGIC = b"WNNVKPCK"
_VERSION = 2
_ZLIB, _LZMA = 1, 2
# magic, version, codec, modules, names, blocks, bytes of JSON, hash of all from there to the blocks
_HEADER = struct.Struct("<8sIIIIII32s")
# key, block, offset in the block, bytes, start of the module's SHA-256
_RECORD = struct.Struct("<32sIII16s")
# start of a name, number of its module in the index
_NAME = struct.Struct("<16sI")
# offset in the file, bytes packed, bytes unpacked
_BLOCK = struct.Struct("<QII")
_BLOCK_BYTES = 208 << 10
_LARGEST_BLOCK = 64 << 20
_BLOCKS_KEPT = 4


class ArchiveError(ValueError):
    """The file is not a shader archive, or it is damaged."""


@dataclass(frozen=True)
class PackStats:
    """Sizes in bytes."""

    path: Path
    modules: int
    size: int
    spirv_size: int
    compiler: str


def _filters() -> list[dict[str, int]]:
    # SPIR-V is made of 4-byte words: positions count modulo 4.
    return [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 2, "pb": 2,
             "dict_size": 1 << 20}]


def _compress(codec: int, data: bytes) -> bytes:
    if codec == _LZMA:
        return lzma.compress(data, lzma.FORMAT_RAW, filters=_filters())
    return zlib.compress(data, 9)


def _decompress(codec: int, data: bytes, size: int) -> bytes | None:
    """`size` bytes, or None; never more memory than that."""
    if codec == _LZMA:
        try:
            unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_filters())
            block = unpacker.decompress(data, max_length=size)
        except lzma.LZMAError:
            return None
    else:
        try:
            block = zlib.decompressobj().decompress(data, size)
        except zlib.error:
            return None
    return block if len(block) == size else None


class ShaderArchive:
    """An open archive: a read-only mapping from key (32 bytes) to SPIR-V. A module may have further
    names, also of 32 bytes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises ArchiveError when the file is missing, damaged or of another version."""
        self.path = Path(path)
        try:
            with open(open_regular(self.path), "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ArchiveError(f"{self.path}: {error}") from None
        if len(self._map) < _HEADER.size:
            raise ArchiveError(f"{self.path}: {len(self._map)} bytes are not a shader archive")
        magic, version, self._codec, self._count, self._names, self._blocks, about, digest = (
            _HEADER.unpack_from(self._map)
        )
        if magic != _MAGIC or version != _VERSION or self._codec not in (_ZLIB, _LZMA):
            raise ArchiveError(f"{self.path}: not a shader archive of version {_VERSION}")
        if self._codec == _LZMA and lzma is None:
            raise ArchiveError(f"{self.path}: this Python has no lzma module to read it with")
        self._name_table = _HEADER.size + self._count * _RECORD.size
        self._table = self._name_table + self._names * _NAME.size
        self._json = self._table + self._blocks * _BLOCK.size
        self._data = self._json + about
        if self._data > len(self._map):
            raise ArchiveError(f"{self.path}: the index is cut off")
        if hashlib.sha256(self._map[_HEADER.size:self._data]).digest() != digest:
            raise ArchiveError(f"{self.path}: the index is damaged")
        self._block = functools.lru_cache(_BLOCKS_KEPT)(self._read_block)

    def __len__(self) -> int:
        return self._count

    @property
    def about(self) -> dict[str, Any]:
        """The record of the build: compiler, sizes, templates."""
        return json.loads(self._map[self._json:self._data])

    def _record(self, i: int) -> tuple[bytes, int, int, int, bytes]:
        return _RECORD.unpack_from(self._map, _HEADER.size + i * _RECORD.size)

    def _find(self, key: bytes) -> tuple[bytes, int, int, int, bytes] | None:
        return _bisected(key, self._count, self._record)

    def _name(self, i: int) -> tuple[bytes, int]:
        return _NAME.unpack_from(self._map, self._name_table + i * _NAME.size)

    def __contains__(self, key: bytes) -> bool:
        return self._find(key) is not None

    def _read_block(self, number: int) -> bytes | None:
        if number >= self._blocks:
            return None
        offset, packed, size = _BLOCK.unpack_from(self._map, self._table + number * _BLOCK.size)
        if size > _LARGEST_BLOCK or offset + packed > len(self._map):
            return None
        return _decompress(self._codec, self._map[offset:offset + packed], size)

    def get(self, key: bytes) -> bytes | None:
        """The module, or None when it is not there or damaged."""
        return self._module(self._find(key))

    def named(self, name: bytes) -> bytes | None:
        """The module of that name, or None when it is not there or damaged."""
        entry = _bisected(name[:16], self._names, self._name)
        if entry is None or entry[1] >= self._count:
            return None
        return self._module(self._record(entry[1]))

    def _module(self, record: tuple[bytes, int, int, int, bytes] | None) -> bytes | None:
        if record is None:
            return None
        _, number, offset, size, digest = record
        block = self._block(number)
        module = b"" if block is None else block[offset:offset + size]
        return module if hashlib.sha256(module).digest()[:16] == digest else None

    def entries(self) -> Iterator[tuple[bytes, int]]:
        """(key, bytes of SPIR-V) of each module, by key."""
        for i in range(self._count):
            key, _, _, size, _ = self._record(i)
            yield key, size

    def close(self) -> None:
        """Unmaps the file."""
        self._map.close()


def find_archive() -> Path | None:
    """The archive to use: WEBNN_VK_PACK, or the installed one, or None. In a clone, which has none,
    this is the archive of a wheel that is installed as well. It may be of another version: modules
    are found by their sources, so it only has fewer of them."""
    named = environment.text("WEBNN_VK_PACK")
    if named:
        return Path(named)
    elsewhere = (Path(folder, _IN_WHEELS) for folder in sys.path if folder)
    # Where a folder may not be searched, Path.is_file raises.
    return next((path for path in (ARCHIVE_PATH, *elsewhere) if os.path.isfile(path)), None)


def _bisected(key: bytes, count: int, record: Callable[[int], Any]) -> Any:
    """The record that begins with the key, of ``count`` sorted ones, or None."""
    at = bisect.bisect_left(range(count), key, key=lambda i: record(i)[0])
    return record(at) if at < count and record(at)[0] == key else None


def _grouped(modules: Mapping[bytes, bytes]) -> Iterator[dict[bytes, bytes]]:
    group: dict[bytes, bytes] = {}
    size = 0
    for key, module in modules.items():
        group[key] = module
        size += len(module)
        if size >= _BLOCK_BYTES:
            yield group
            group, size = {}, 0
    if group:
        yield group


def write_archive(
    modules: Mapping[bytes, bytes],
    path: str | os.PathLike[str],
    about: Mapping[str, Any],
    names: Mapping[bytes, bytes] | None = None,
) -> PackStats:
    """Writes an archive of {key: SPIR-V}. Neighbours are compressed together, so similar modules
    should be next to each other. ``names``: further names of modules, with their keys.

    The same modules in the same order give the same bytes.
    """
    codec = _ZLIB if lzma is None else _LZMA
    groups = list(_grouped(modules))
    spirv_size = sum(map(len, modules.values()))
    about_json = json.dumps({**about, "spirv_bytes": spirv_size}, sort_keys=True).encode()
    numbers = {key: number for number, key in enumerate(sorted(modules))}
    named = sorted(_NAME.pack(name[:16], numbers[key]) for name, key in (names or {}).items())
    start = (
        _HEADER.size + len(modules) * _RECORD.size + len(named) * _NAME.size
        + len(groups) * _BLOCK.size + len(about_json)
    )
    records, table, data = [], bytearray(), bytearray()
    for number, group in enumerate(groups):
        block = b"".join(group.values())
        packed = _compress(codec, block)
        table += _BLOCK.pack(start + len(data), len(packed), len(block))
        data += packed
        offset = 0
        for key, module in group.items():
            digest = hashlib.sha256(module).digest()[:16]
            records.append(_RECORD.pack(key, number, offset, len(module), digest))
            offset += len(module)
    checked = b"".join(sorted(records)) + b"".join(named) + bytes(table) + about_json
    header = _HEADER.pack(
        _MAGIC, _VERSION, codec, len(modules), len(named), len(groups), len(about_json),
        hashlib.sha256(checked).digest(),
    )
    path = Path(path)
    write_atomically(path, header + checked + bytes(data), mode=0o644)
    size = len(header) + len(checked) + len(data)
    return PackStats(path, len(modules), size, spirv_size, str(about.get("compiler", "")))

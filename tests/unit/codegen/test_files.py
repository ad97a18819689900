"""Files of the caches and of compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.counting import peak_bytes_of
from webnn_vk.codegen.files import CacheFiles, read_regular


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """Whatever the limit: a buffer of its size would be most of what a build takes."""
    path = tmp_path / "entry"
    key, entries = b"k" * 32, CacheFiles(b"WNNVKTST", 1, largest=64 << 20)
    entries.write(path, key, b"data" * 100)
    assert entries.read(path, key) == b"data" * 100
    assert peak_bytes_of(lambda: entries.read(path, key)) < 100_000
    assert peak_bytes_of(lambda: read_regular(path, 256 << 20)) < 100_000


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    assert read_regular(path, 100) == bytes(100)
    with pytest.raises(OSError, match="100 bytes, at most 99 are read"):
        read_regular(path, 99)


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        read_regular(tmp_path, 100)

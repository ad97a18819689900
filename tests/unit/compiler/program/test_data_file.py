"""Places in the file of a saved program."""

import re
from pathlib import Path

import pytest

from webnn_vk.compiler.program.data_file import DataReader


@pytest.mark.parametrize(("offset", "length"), [(0, 8), (8, 0), (3, 5), (7, 1)])
def test_places_up_to_the_end_are_read(tmp_path: Path, offset: int, length: int) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abcdefgh")
    assert DataReader(path).bytes([offset, length]) == b"abcdefgh"[offset : offset + length]


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (-1, 0), (0, -1), (0, 9), (8, 1), (9, 0)])
def test_places_outside_are_refused(tmp_path: Path, offset: int, length: int) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abcdefgh")
    with pytest.raises(ValueError, match=re.escape(f"of 8 bytes has no {offset}+{length}")):
        DataReader(path).bytes([offset, length])

"""Arrays in separate pages: contents, layout, and how their memory is freed."""

import gc
import mmap
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from webnn_vk.support import mmap_array
from webnn_vk.support.mmap_array import (
    PAGED_BYTES,
    drop_pages,
    mapped_file,
    own_copy,
    own_pages,
)


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (PAGED_BYTES // 4,), (64, 3, 700)])
def test_zeros_of_any_size(shape):
    array = own_pages(shape, np.dtype(np.float32))
    assert array.shape == shape and array.dtype == np.float32
    assert array.flags.c_contiguous and array.flags.aligned and array.flags.writeable
    assert not array.any()


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int64])
@pytest.mark.parametrize("rows", [3, 2000])
def test_copies(dtype, rows):
    given = (np.arange(rows * 70) % 199).reshape(rows, 70).astype(dtype)
    for source in (given, given.T, given[::2, ::-1]):
        copy = own_copy(source)
        np.testing.assert_array_equal(copy, source)
        assert copy.flags.c_contiguous and not np.shares_memory(copy, given)


def test_pages_go_with_the_last_view(monkeypatch):
    """The mapping is freed with the last array that uses it."""
    made = []

    class Watched(mmap_array.mmap.mmap):
        pass

    def mapping(*arguments, **options):
        made.append(weakref.ref(found := Watched(*arguments, **options)))
        return found

    monkeypatch.setattr(mmap_array.mmap, "mmap", mapping)
    view = own_copy(np.ones(PAGED_BYTES, np.uint8)).view(np.float32)[5:]
    gc.collect()
    (mapped,) = made
    assert mapped() is not None
    del view
    gc.collect()
    assert mapped() is None


def test_no_memory_is_memory_error():
    with pytest.raises(MemoryError, match="no memory for an array"):
        own_pages((1 << 60,), np.dtype(np.uint8))


def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="pages can't be dropped")
def test_the_pages_of_an_array_are_dropped(tmp_path, monkeypatch):
    """From the page of its first byte to its last byte. All bytes stay readable."""
    size = 24 << 20
    elements = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    (tmp_path / "file").write_bytes(elements.tobytes())
    array, advised = mapped_file(tmp_path / "file"), []
    advise = mmap_array._FileMap.madvise
    monkeypatch.setattr(
        mmap_array._FileMap, "madvise",
        lambda self, *given: (advised.append(given), advise(self, *given)), raising=False,
    )
    drop_pages(array[5000 : size - 5000].view(np.uint16).reshape(2, -1).T)
    first = 5000 // mmap.PAGESIZE * mmap.PAGESIZE
    assert advised == [(mmap.MADV_DONTNEED, first, size - 5000 - first)]
    np.testing.assert_array_equal(array, elements)


@pytest.mark.explore  # the system may take pages out of memory when it likes
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_goes_with_the_pages_of_a_file(tmp_path):
    size = 24 << 20
    elements = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    (tmp_path / "file").write_bytes(elements.tobytes())
    array = mapped_file(tmp_path / "file")
    before = resident("RssFile")
    np.testing.assert_array_equal(array, elements)
    read = resident("RssFile")
    assert read > before + 0.9 * size
    part = array[5000 : size - 5000].view(np.uint16).reshape(2, -1).T
    drop_pages(part)
    assert resident("RssFile") < read - 0.9 * size
    np.testing.assert_array_equal(array, elements)


def test_other_arrays_are_left_alone(tmp_path):
    """Anonymous memory, a map that is written to, an empty file, elements that are not together."""
    (tmp_path / "file").write_bytes(bytes(range(256)) * 1024)
    (tmp_path / "empty").touch()
    written = np.memmap(tmp_path / "file", np.uint8, "c")
    written[:] = 7
    ours = own_copy(written)
    for array in (written, ours, ours[10:], np.ones(5), mapped_file(tmp_path / "file")[::3]):
        expected = array.copy()
        drop_pages(array)
        np.testing.assert_array_equal(array, expected)
    drop_pages(mapped_file(tmp_path / "empty"))

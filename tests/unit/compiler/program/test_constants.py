import os

import numpy as np
import pytest

from webnn_vk.compiler.program import Constants, TensorStorage
from webnn_vk.compiler.program.constants import FileRange, HostArray, MappedFile


def test_the_three_kinds_of_references(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(100)))
    array, storage = np.arange(6, dtype=np.int16).reshape(2, 3), object()
    part = FileRange(path, 10, 5, MappedFile(path))
    store = Constants([HostArray(array), TensorStorage(storage), part])
    assert store.read(0).tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert np.shares_memory(store.read(0), array)
    assert store.read(2).tolist() == [10, 11, 12, 13, 14]
    assert [store.storage(n) for n in range(3)] == [None, storage, None]
    assert store.identity(0) is array and store.identity(1) is storage
    again = FileRange(path, 10, 5, MappedFile(path))
    assert store.identity(2) == Constants([again]).identity(0)
    os.utime(path, ns=(0, 1))
    changed = FileRange(path, 10, 5, MappedFile(path))
    assert store.identity(2) != Constants([changed]).identity(0)
    with pytest.raises(TypeError, match="constant 1 is a constant tensor"):
        store.read(1)


def test_what_was_released_is_gone():
    store = Constants([HostArray(np.zeros(3)), HostArray(np.ones(3))])
    store.release(0)
    store.release(0)
    with pytest.raises(LookupError, match="constant 0 was released"):
        store.read(0)
    assert store.read(1).nbytes == 24

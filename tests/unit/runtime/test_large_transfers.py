"""What transfers of many bytes cost the host, on the null driver, which copies and computes nothing
else: every byte is copied once, and the host waits for nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from webnn_vk.codegen.store import ShaderStore
from webnn_vk.driver import OutOfDeviceMemory, resources
from webnn_vk.driver.null.driver import NullDriver
from webnn_vk.runtime import batch_assembly
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.work import Read, Work, Write
from webnn_vk.support.host_copy import copy_bytes

PIECE = 1 << 16
SIZE = 16 * PIECE + 5
#: What the library may allocate beside the data: records, commands and errors.
LITTLE = PIECE

Copied = list[int]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> Copied:
    """The sizes of the host's copies."""
    sizes: Copied = []

    def copy(target: np.ndarray, source: np.ndarray) -> None:
        sizes.append(len(source))
        copy_bytes(target, source)

    monkeypatch.setattr(resources, "copy_bytes", copy)
    monkeypatch.setattr(batch_assembly, "copy_bytes", copy)
    return sizes


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverDevice]:
    monkeypatch.setattr(batch_assembly, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(batch_assembly, "STAGED_BYTES", 2 * PIECE)
    monkeypatch.setattr(batch_assembly, "IN_PLACE_BYTES", 2 * SIZE)
    device = DriverDevice(NullDriver(), ShaderStore())
    yield device
    device.close()


def _data(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)


def _run(device: DriverDevice, *works: Work) -> int:
    """Runs works as one batch; returns how often the host waited before all were submitted."""
    waits: list[int] = []
    wait = device.driver.wait

    def waited(value: int, timeout: float | None = None) -> bool:
        waits.append(value)
        return wait(value, timeout)

    device.driver.wait = waited  # type: ignore[method-assign]
    batch = device.execute(works)
    count = len(waits)
    device.wait(batch)
    batch.complete()
    del device.driver.wait
    return count


def _unexpected(error: Exception) -> None:
    raise error


def _read(device: DriverDevice, storage: Any) -> np.ndarray:
    found: list[np.ndarray] = []
    _run(device, Read(storage, found.append, _unexpected))
    return found[0]


@contextmanager
def _allocating(most: int) -> Iterator[None]:
    """Fails if NumPy and Python hold more than ``most`` new bytes at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= most
    finally:
        tracemalloc.stop()


def test_a_staged_write_copies_each_byte_once(device: DriverDevice, copied: Copied) -> None:
    storage, data = device.create_storage(SIZE), _data()
    staged = device.stage(data)
    assert [piece.size >= PIECE for piece in staged] == [True] * 16 + [False]
    expected = data.copy()
    data[:] = 0  # the caller's own again
    assert _run(device, Write(storage, None, staged)) == 0
    assert sum(copied) == SIZE and max(copied) == PIECE
    np.testing.assert_array_equal(_read(device, storage), expected)
    assert all(piece.freed for piece in staged)


def test_data_that_the_library_holds_is_staged_piece_by_piece(
    device: DriverDevice, copied: Copied
) -> None:
    """Weights, for example. The device has each piece before the host copies the next one, and
    staging memory serves several pieces."""
    storage, data = device.create_storage(SIZE), _data(1)
    most, allocate = 0, device.driver.allocate

    def allocated(*arguments: Any, **options: Any) -> Any:
        nonlocal most
        made = allocate(*arguments, **options)
        most = max(most, device.driver.memory_in_use().allocated)
        return made

    device.driver.allocate = allocated  # type: ignore[method-assign]
    submits = device.driver.submitted()
    assert _run(device, Write(storage, data, fresh=False)) == 0
    assert device.driver.submitted() - submits == 17
    assert most <= storage.backing.size + 2 * PIECE
    assert sum(copied) == SIZE
    np.testing.assert_array_equal(_read(device, storage), data)


def test_a_part_is_written_in_pieces(device: DriverDevice) -> None:
    storage, data = device.create_storage(2 * SIZE), _data(2)
    part = 7 * 256, SIZE
    _run(device, Write(storage, np.ones(2 * SIZE, np.uint8)))
    _run(device, Write(storage, None, device.stage(data), part))
    found = _read(device, storage)
    np.testing.assert_array_equal(found[part[0] : part[0] + SIZE], data)
    assert (found[: part[0]] == 1).all() and (found[part[0] + SIZE :] == 1).all()


def test_a_read_fills_the_readers_array(device: DriverDevice, copied: Copied) -> None:
    storage, data = device.create_storage(SIZE), _data(3)
    _run(device, Write(storage, data))
    copied.clear()
    out, done = np.zeros(SIZE, np.uint8), []
    with _allocating(2 * PIECE + LITTLE):  # staging memory is Python's on this driver
        assert _run(device, Read(storage, done.append, _unexpected, into=lambda: out)) == 0
    assert done[0] is out and sum(copied) == SIZE
    np.testing.assert_array_equal(out, data)


def test_a_read_of_a_part_makes_its_own_array(device: DriverDevice, copied: Copied) -> None:
    storage, data = device.create_storage(SIZE), _data(4)
    _run(device, Write(storage, data))
    copied.clear()
    done: list[np.ndarray] = []
    assert _run(device, Read(storage, done.append, _unexpected, part=(9, SIZE - 20))) == 0
    np.testing.assert_array_equal(done[0], data[9:-11])
    assert sum(copied) == SIZE - 20


def test_what_nobody_wants_any_more_is_not_copied(device: DriverDevice, copied: Copied) -> None:
    storage = device.create_storage(SIZE)
    _run(device, Write(storage, _data(5)))
    copied.clear()
    asked: list[None] = []
    _run(device, Read(storage, _unexpected, _unexpected, into=lambda: asked.append(None)))
    assert len(asked) == 1 and not copied


@pytest.mark.parametrize("after", [0, 5])
def test_a_read_that_fails_in_the_middle(
    device: DriverDevice, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its array is asked for once, when the first bytes are there, and may be refused then."""
    storage = device.create_storage(SIZE)
    _run(device, Write(storage, _data(6)))
    submit, left = device.driver.submit, after

    def failing(*arguments: Any, **options: Any) -> int:
        nonlocal left
        left -= 1
        if left == -1:
            raise OSError("the submit failed")
        return submit(*arguments, **options)

    failed: list[Exception] = []
    asked: list[int] = []

    def into() -> np.ndarray | None:
        asked.append(len(failed))
        return None if failed else np.zeros(SIZE, np.uint8)

    monkeypatch.setattr(device.driver, "submit", failing)
    _run(device, Read(storage, _unexpected, failed.append, into=into))
    assert len(failed) == 1 and "the submit failed" in str(failed[0])
    assert asked == [0 if after else 1]


def test_memory_that_is_short_leaves_the_copy_to_the_timeline(
    device: DriverDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, data = device.create_storage(SIZE), _data(7)
    made: list[Any] = []
    allocate: Callable[..., Any] = device.driver.allocate

    def short(*arguments: Any, **options: Any) -> Any:
        if len(made) == 3:
            raise OutOfDeviceMemory("no memory", requested=1)
        made.append(allocate(*arguments, **options))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(device.driver, "allocate", short)
        assert device.stage(data) == ()
    _run(device, Write(storage, data))
    np.testing.assert_array_equal(_read(device, storage), data)

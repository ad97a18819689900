"""Copies by several threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from webnn_vk.support import host_copy

PART = 1 << 12


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copy, "PART_BYTES", PART)
    monkeypatch.setattr(host_copy, "cores", lambda: 4)


def _copied(size: int) -> None:
    source = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    target = np.zeros(size + 2, np.uint8)
    host_copy.copy_bytes(target[1:-1], source)
    np.testing.assert_array_equal(target[1:-1], source)
    assert target[0] == target[-1] == 0


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 100 * PART + 7])
def test_every_byte_is_copied(size: int) -> None:
    _copied(size)


@pytest.mark.parametrize(("size", "threads"), [(PART, 0), (2 * PART, 1), (100 * PART, 3)])
def test_as_many_threads_as_there_are_parts_or_cores(
    monkeypatch: pytest.MonkeyPatch, size: int, threads: int
) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def counted(self: threading.Thread) -> None:
        started.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", counted)
    _copied(size)
    assert started == ["webnn_vk-copy"] * threads


def test_without_threads_it_copies_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def no_memory() -> None:
        raise RuntimeError("can't start new thread: no room for 9437184 bytes")

    monkeypatch.setattr(threading.Thread, "start", refused)
    _copied(100 * PART)
    monkeypatch.setattr(host_copy.memory_probe, "require_for_thread", no_memory)
    _copied(100 * PART)


def test_what_a_thread_lacks_memory_for_is_an_error() -> None:
    class Short(np.ndarray):
        """Its middle can't be read."""

        def __getitem__(self, part: slice) -> np.ndarray:  # type: ignore[override]
            if part.start == 50 * PART:
                raise MemoryError("no memory for a slice")
            return super().__getitem__(part)

    source = np.zeros(100 * PART, np.uint8).view(Short)
    with pytest.raises(MemoryError, match="for a slice"):
        host_copy.copy_bytes(np.zeros(100 * PART, np.uint8), source)

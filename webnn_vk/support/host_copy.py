"""Copies of many bytes on the host: one thread alone does not use all of the memory's bandwidth."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from . import memory_probe
from .processor import cores

#: Bytes that a thread copies at a time; starting one takes as long as copying a tenth of them.
PART_BYTES = 8 << 20
#: More threads gain nothing: a few of them use all of the bandwidth.
MAX_THREADS = 4


def copy_bytes(target: np.ndarray, source: np.ndarray) -> None:
    """``target[...] = source`` for flat bytes, by several threads if there are more than
    ``PART_BYTES``. Don't copy that many on the main thread: a signal handler may raise in the
    middle. MemoryError if there is no memory to address a part."""
    if len(target) <= PART_BYTES:
        target[...] = source
        return
    starts = deque(range(0, len(target), PART_BYTES))

    errors: list[MemoryError] = []

    def copy() -> None:
        try:
            while starts and not errors:
                try:
                    start = starts.popleft()
                except IndexError:
                    return
                part = slice(start, start + PART_BYTES)
                target[part] = source[part]
        except MemoryError as error:  # of the slices
            errors.append(error)

    helpers = []
    for _ in range(min(len(starts), MAX_THREADS, cores()) - 1):
        helper = threading.Thread(target=copy, name="webnn_vk-copy", daemon=True)
        try:
            memory_probe.require_for_thread()
            helper.start()
        except RuntimeError:
            break  # the system has no thread left
        helpers.append(helper)
    copy()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]

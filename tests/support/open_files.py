"""The open files of this process."""

from __future__ import annotations

import os
import time

FOLDER = "/proc/self/fd"


def open_files() -> set[tuple[int, str, int]]:
    """Descriptor, path and inode of each open file.

    Tests compare sets, not counts: what earlier tests left to a background thread or to the
    garbage collector may be closed at any moment, and one file closed would hide one left open."""
    found = set()
    for descriptor in map(int, os.listdir(FOLDER)):
        try:
            path = os.readlink(f"{FOLDER}/{descriptor}")
            found.add((descriptor, path, os.fstat(descriptor).st_ino))
        except OSError:  # closed meanwhile, as the one that lists the folder is
            pass
    return found


def left_open(before: set[tuple[int, str, int]]) -> set[tuple[int, str, int]]:
    """Files that were opened since ``before`` and stay open: other threads of the process may have
    one open for a moment."""
    end = time.monotonic() + 60
    while (found := open_files() - before) and time.monotonic() < end:
        time.sleep(0.01)
    return found

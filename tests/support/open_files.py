"""The open files of this process."""

from __future__ import annotations

import os

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

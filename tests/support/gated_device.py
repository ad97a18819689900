"""A device for a timeline that runs nothing until a test opens its gate."""

from __future__ import annotations

import threading
import weakref
from collections import deque

import numpy as np

from webnn_vk.runtime.device import Batch
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.work import Read, Run, Write


class FakeDevice:
    """Runs batches when the test opens the gate; can be lost."""

    profile = None
    name = "fake"
    direct = None

    def __init__(self):
        self.started = []
        self.gate = threading.Event()
        self.gate.set()
        self.fail_with = None
        self.closed = False
        self.living, self.deferred = set(), deque()

    def create_storage(self, size):
        storage = Storage(size, np.zeros(size, np.uint8))
        self.living.add(weakref.ref(storage, self.deferred.append))
        return storage

    def execute(self, works):
        if self.fail_with is not None:
            raise self.fail_with
        self.started.append(len(works))
        batch = Batch(works, value=len(self.started))
        for work in works:
            if isinstance(work, Run):
                batch.completions.append((work, work.function))
            elif isinstance(work, Write):
                work.storage.backing[:] = work.data
            elif isinstance(work, Read):
                data = work.storage.backing.copy()
                batch.completions.append((work, lambda work=work, data=data: work.done(data)))
        return batch

    def is_over(self, batch):
        return self.fail_with is not None or self.gate.is_set()

    def wait(self, batch):
        self.gate.wait(60)
        if self.fail_with is not None:
            raise self.fail_with

    def trim(self):
        pass

    def close(self):
        self.closed = True


def failed(error):
    """For work that must not fail."""
    raise error

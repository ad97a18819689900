"""The cost of exported tensors: no copies, and no memory that stays."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from tests.support.exportable import exportable, numbers
from tests.support.gpu_shaders import contents, double
from tests.support.open_files import left_open, open_files
from webnn_vk import InvalidStateError
from webnn_vk.driver import CopyCommand
from webnn_vk.runtime import batch_assembly


def test_no_copy(pair: Any, monkeypatch: pytest.MonkeyPatch, compiler: None) -> None:
    """Exporting and returning records no copy and allocates no memory."""
    monkeypatch.setattr(batch_assembly, "IN_PLACE_BYTES", 1 << 40)
    context, device = pair
    tensor, values = exportable(pair, "float32", (256, 1024)), numbers("float32", (256, 1024))
    context.write_tensor(tensor, values)
    context.fence().wait(60)
    with context.export_to_gpu(tensor) as buffer:
        double(device, buffer).wait(60)  # pipelines are there now
    context.fence().wait(60)
    used = context._state.device.memory_in_use(), device._state.device.memory_in_use()
    copied = []
    for driver in {context._state.device.driver, device._state.device.driver}:
        record = driver.record

        def watched(commands: Any, record: Any = record) -> Any:
            copied.extend(c for c in commands if isinstance(c, CopyCommand))
            return record(commands)

        monkeypatch.setattr(driver, "record", watched)
    for _ in range(3):
        buffer = context.export_to_gpu(tensor)
        double(device, buffer).wait(60)
        assert (context._state.device.memory_in_use(), device._state.device.memory_in_use()) == used
        buffer.destroy()
    context.fence().wait(60)
    assert copied == []
    assert np.array_equal(context.read_tensor(tensor).result(60), values * 16)
    assert copied  # reading does copy: the counter works


def _used(pair: Any) -> tuple[int, int]:
    context, device = pair
    gc.collect()  # what that drops goes after the work on both timelines
    context.fence().wait(60)
    device.queue.on_submitted_work_done().result(60)
    context.fence().wait(60)
    return context._state.device.memory_in_use(), device._state.device.memory_in_use()


@pytest.mark.parametrize("cycles", [1000])
def test_nothing_leaks(pair: Any, cycles: int) -> None:
    context, device = pair
    keep, values = exportable(pair, "float32"), numbers("float32")
    context.write_tensor(keep, values)

    def cycle() -> None:
        buffer = context.export_to_gpu(keep)
        buffer.destroy()

    cycle()
    before = _used(pair)
    files = open_files()
    for _ in range(cycles):
        cycle()
    # Tensors that come and go with their buffers, in all orders.
    for i in range(60):
        tensor = exportable(pair, "float32", (64, 64))
        buffer = context.export_to_gpu(tensor)
        orders = (buffer, tensor), (tensor, buffer), (buffer,), (tensor,), ()
        for thing in orders[i % 5]:
            thing.destroy()
        del tensor, buffer, orders
        thing = None
    assert _used(pair) == before
    assert not left_open(files)
    assert np.array_equal(context.read_tensor(keep).result(60), values)


def test_what_is_destroyed_keeps_no_memory(pair: Any) -> None:
    """Though the objects still exist; an exported buffer keeps its memory, but not longer."""
    context, device = pair

    before, values = _used(pair), numbers("float32")
    back, out, dropped = (exportable(pair, "float32") for _ in range(3))
    context.export_to_gpu(back).destroy()
    context.export_to_gpu(dropped)
    context.write_tensor(out, values)
    buffer = context.export_to_gpu(out)
    for tensor in back, out, dropped:
        tensor.destroy()
    assert np.array_equal(contents(device, buffer), values.ravel())
    buffer.destroy()
    for tensor in back, out, dropped:
        with pytest.raises(InvalidStateError):
            context.export_to_gpu(tensor)
    # A buffer that is destroyed after its tensor is gone.
    last = context.export_to_gpu(exportable(pair, "float32"))
    gc.collect()
    last.destroy()
    assert _used(pair) == before

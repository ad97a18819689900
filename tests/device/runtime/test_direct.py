"""Direct work on a Vulkan device: values, from one thread and from many."""

import threading

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.direct_world import PATIENCE, World, counting
from webnn_vk.runtime.direct import DirectWork
from webnn_vk.support import background

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("vulkan")]


@pytest.fixture(scope="module", params=["in place", "transfers"])
def world(vulkan, request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "transfers":
            patch.setattr(DirectWork, "_copy", lambda *arguments: False)
        world = World(open_context("vulkan"), waits=request.param == "in place")
        yield world
    world.context.destroy()


@pytest.mark.parametrize("call", ["write", "dispatch", "read", "fence", "compute", "all"])
@pytest.mark.usefixtures("never_quiet")
def test_nothing_is_recorded_and_no_thread_wakes(world, monkeypatch, call):
    for _ in range(3):
        world.settle()
        world.calls[call]()
        world.context.fence().wait(PATIENCE)
    world.settle()
    seen = []
    driver, inbox = world.timeline.device.driver, world.timeline._scheduler.inbox
    for owner, name in ((inbox, "put"), (background, "run_on_worker"), (driver, "record")):
        monkeypatch.setattr(owner, name, counting(getattr(owner, name), name, seen))
    for _ in range(10):
        world.calls[call]()
        world.context.fence().wait(PATIENCE)
    assert not seen


def test_values_in_the_order_of_the_calls(world):
    for number in range(50):
        world.write(number)
        world.dispatch()
        before = world.read()
        world.write(-number)
        world.dispatch()
        after = world.read()
        world.compute(number + 0.5)
        assert before.result(PATIENCE).tolist() == [number] * 4
        assert after.result(PATIENCE).tolist() == [-number] * 4


def test_many_threads_on_one_context(world):
    """Each has tensors of its own; their calls are direct or queued, as it happens."""
    wrong = []

    def work(first):
        x, y = (
            world.context.create_tensor(
                {"data_type": "float32", "shape": [4], "readable": True, "writable": True}
            ).result(PATIENCE)
            for _ in range(2)
        )
        for number in range(first, first + 40):
            data = np.full(4, number, np.float32)
            world.context.write_tensor(x, data)
            world.context.dispatch(world.graph, {"x": x}, {"y": y})
            read = world.context.read_tensor(y)
            computed = world.context.compute(world.graph, {"x": data + 0.5})["y"]
            if read.result(PATIENCE).tolist() != [number] * 4:
                wrong.append(number)
            if computed.tolist() != [number + 0.5] * 4:
                wrong.append(number + 0.5)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

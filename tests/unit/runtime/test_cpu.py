"""The CPU device: the contents of memory after its jobs, and which error a result has."""

import numpy as np

from tests.support.graphs import graph_input, graph_of
from webnn_vk import OperationError, UnknownError
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.runtime.cpu import CpuDevice
from webnn_vk.runtime.work import Allocate, Read, Run, RunGraph, Write


def run(device, *works):
    batch = device.execute(works)
    device.wait(batch)
    batch.complete()


def storage(device, *values):
    made = device.create_storage(4 * len(values))
    run(device, Write(made, np.array(values, np.float32).view(np.uint8)))
    return made


def read(made, device, part=None):
    found = []
    run(device, Read(made, found.append, found.append, part))
    (result,) = found
    return result if isinstance(result, Exception) else result.view(np.float32).tolist()


def doubling():
    emit = Emitter()
    x = graph_input("x", (2,))
    return compile_program(graph_of(emit, {"y": emit.add(x, x)}, x), Target(None))


def test_dispatch_and_parts():
    device = CpuDevice()
    x, y = storage(device, 1, 2), storage(device, 0, 0)
    run(device, RunGraph(device.load(*doubling()), {"x": x}, {"y": y}))
    assert read(y, device) == [2, 4] and read(y, device, (4, 4)) == [4]
    run(device, Write(y, np.array([9], np.float32).view(np.uint8), part=(0, 4)))
    assert read(y, device) == [9, 4]
    run(device, Write(y, None))
    assert read(y, device) == [0, 0]


def test_what_failed_inputs_make_has_their_error():
    device = CpuDevice()
    x, y = storage(device, 1, 2), storage(device, 5, 6)
    executable = device.load(*doubling())
    x.error = OperationError("the first one failed")
    run(device, RunGraph(executable, {"x": x}, {"y": y}))
    error = read(y, device)
    assert isinstance(error, OperationError) and str(error) == "the first one failed"
    # Writing all of it repairs the tensor, writing a part does not.
    run(device, Write(x, np.zeros(4, np.uint8), part=(0, 4)))
    assert isinstance(read(x, device), OperationError)
    run(device, Write(x, np.array([3, 4], np.float32).view(np.uint8)))
    run(device, RunGraph(executable, {"x": x}, {"y": y}))
    assert read(y, device) == [6, 8]


def test_a_promised_storage_and_what_fails():
    device = CpuDevice()
    promised, failed = device.promise_storage(8), []
    run(device, Write(promised, None))
    run(device, Allocate(promised), Write(promised, None))
    assert read(promised, device) == [0, 0] and device.memory_in_use() == 8

    def fail():
        raise ValueError("odd")

    run(device, Run(fail, failed.append))
    assert isinstance(failed[0], UnknownError) and "odd" in str(failed[0])
    del promised
    assert device.memory_in_use() == 0

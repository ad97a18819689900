"""Unusual buffers: another byte order, released, read-only, strided, other element widths, and
objects that report false properties. Buffers that fit are written and read correctly. All others
raise TypeError, which names the call, and change nothing."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np

from tests.system.stress.kinds import Kind
from tests.system.stress.model import Failure
from tests.system.stress.world import PATIENCE, World
from webnn_vk import DOMException


class _Raising:
    """An array-like object that raises on conversion."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise self.error

    def __buffer__(self, flags: int) -> memoryview:
        raise self.error

    def __len__(self) -> int:
        raise self.error


def _released(value: np.ndarray) -> memoryview:
    view = memoryview(value.copy())
    view.release()
    return view


def _big_endian_view(value: np.ndarray) -> Any:
    return (ctypes.c_int32.__ctype_be__ * len(value))(*value.tolist())


#: Makers of buffers that can't be written to an int32 tensor, given an array's values.
REFUSED = {
    "big-endian": lambda value: value.astype(">i4"),
    "big-endian unsigned": lambda value: value.astype(">u4"),
    "big-endian float": lambda value: value.astype(">f4"),
    "big-endian by ctypes": _big_endian_view,
    "float64": lambda value: value.astype(np.float64),
    "released": _released,
    "raising ValueError": lambda value: _Raising(ValueError("odd")),
    "raising OSError": lambda value: _Raising(OSError("odd")),
    "text": lambda value: "1" * (4 * len(value)),
    "objects": lambda value: value.astype(object),
    "a byte more": lambda value: value.tobytes() + b"x",
    "a huge number": lambda value: [10**5000] * len(value),
    "nothing": lambda value: None,
}

#: Makers of buffers that can: the same bits in another form.
TAKEN = {
    "bytes": lambda value: value.tobytes(),
    "bytearray": lambda value: bytearray(value.tobytes()),
    "read-only": lambda value: memoryview(value.tobytes()).cast("i"),
    "array.array": lambda value: array.array("i", value.tolist()),
    "strided": lambda value: np.repeat(value, 2)[::2],
    "backwards": lambda value: value[::-1].copy()[::-1],
    "unsigned": lambda value: value.view(np.uint32),
    "unaligned": lambda value: np.frombuffer(b"x" + value.tobytes(), np.int32, offset=1),
    "numbers": lambda value: value.tolist(),
    "ctypes": lambda value: (ctypes.c_int32 * len(value))(*value.tolist()),
}

#: Buffers that can't receive an int32 tensor's contents.
UNFILLABLE = {
    "big-endian": lambda length: np.zeros(length, ">i4"),
    "read-only": lambda length: bytes(4 * length),
    "strided": lambda length: np.zeros(2 * length + 2, np.int32)[::2],
    "released": lambda length: _released(np.zeros(length, np.int32)),
    "too short": lambda length: bytearray(4 * length - 1),
    "raising": lambda length: _Raising(ValueError("odd")),
    "numbers": lambda length: [0] * length,
}


def write_odd(caller: Any, world: World) -> bool:
    """One refused and one accepted buffer, of random kinds."""
    with world.lock:
        used = caller.pick_tensor(world)
        if used is None:
            return False
        context, value = world.context, caller.values(len(used.value))
        name = caller.random.choice([*REFUSED])
        odd = REFUSED[name](value)
        _refused(world, used, f"write_tensor of {name}", "write_tensor",
                 lambda: context.write_tensor(used.tensor, odd))
        odd = TAKEN[caller.random.choice([*TAKEN])](value)
        with world.using(world, used):
            context.write_tensor(used.tensor, odd)
            used.value = value.copy()
    value[:] = -1
    return True


def read_odd(caller: Any, world: World) -> bool:
    """Reads into a buffer that can't receive the data: the promise is rejected, and the call itself
    raises nothing."""
    with world.lock:
        used = caller.pick_tensor(world)
        if used is None:
            return False
        context = world.context
        name = caller.random.choice([*UNFILLABLE])
        promise = context.read_tensor(used.tensor, UNFILLABLE[name](len(used.value)))
        _refused(world, used, f"read_tensor into {name}", "read_tensor",
                 lambda: promise.result(PATIENCE))
    return True


def compute_odd(caller: Any, world: World) -> bool:
    graph = caller.pick(world.graphs)
    if graph is None:
        return False
    context = world.context
    x, y = caller.values(graph.length), caller.values(graph.length)
    name = caller.random.choice([*REFUSED])
    odd = REFUSED[name](x)
    _refused(world, graph, f"compute of {name}", "compute",
             lambda: context.compute(graph.graph, {"x": odd, "y": y}))
    odd = TAKEN[caller.random.choice([*TAKEN])](x)
    with world.trying(world, graph):
        found = context.compute(graph.graph, {"x": odd, "y": y})["z"]
        if not np.array_equal(found, graph.formula.evaluate(x, y)):
            raise Failure(f"{context!r}: compute {graph.formula.name}: {found[:8]}")
    return True


def _refused(world: World, used: Any, what: str, method: str, call: Any) -> None:
    """The call raises a TypeError that names the method, or is excused because its objects were
    destroyed."""
    try:
        call()
    except TypeError as error:
        if isinstance(error, DOMException):
            world.excuse(error, world, used)
        elif method not in str(error):
            raise Failure(f"{what}: the message doesn't name it: {error}") from error
    except DOMException as error:
        world.excuse(error, world, used)
    else:
        raise Failure(f"{world.context!r}: {what} went through")


KINDS = (
    Kind("write_odd", write_odd, 4),
    Kind("read_odd", read_odd, 3),
    Kind("compute_odd", compute_odd, 1),
)

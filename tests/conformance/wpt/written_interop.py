"""Steps of tests whose tensors a GPUDevice has in between; see `written`."""

from __future__ import annotations

from collections.abc import Callable

from .steps import Step, awaited, holds, on, ref, throws, typed

COUNT, SHAPE = 48, [24, 2]
_NUMBERS = [float(n) for n in range(1, COUNT + 1)]


class _Interop:
    """Steps on one context, one GPUDevice and one data type."""

    def __init__(self, data_type: str) -> None:
        self.data_type, self.array = data_type, f"{data_type.capitalize()}Array"
        self.described = {"dataType": data_type, "shape": SHAPE}

    def graph(self) -> list[Step]:
        """output = input + input: in the draft one tensor can't be passed as two inputs."""
        return [
            {"new": "MLGraphBuilder", "args": [ref("c")], "out": "b"},
            on("b", "input", "input", self.described, out="x"),
            on("b", "add", ref("x"), ref("x"), out="sum"),
            awaited("b", "build", {"output": ref("sum")}, out="g"),
        ]

    def tensor(self, *names: str) -> list[Step]:
        wanted = {**self.described, "readable": True, "writable": True}
        return [awaited("c", "createExportableTensor", wanted, ref("gpu"), out=n) for n in names]

    def write(self, tensor: str, values: list[float]) -> Step:
        return on("c", "writeTensor", ref(tensor), typed(self.array, values))

    def read(self, tensor: str, values: list[float]) -> list[Step]:
        return [awaited("c", "readTensor", ref(tensor), out="d"),
                holds("d", self.array, values)]

    def export(self, tensor: str, buffer: str) -> Step:
        return on("c", "exportToGPU", ref(tensor), out=buffer)

    def dispatch(self, tensor: str, output: str) -> Step:
        return on("c", "dispatch", ref("g"), {"input": ref(tensor)}, {"output": ref(output)})

    def increment(self, source: str, target: str) -> Step:
        return {"increment": [source, target], "on": "gpu", "as": self.array}

    def buffer(self, buffer: str, values: list[float]) -> Step:
        return {"expectBuffer": buffer, "on": "gpu", "as": self.array, "equals": values}


def _plus(values: list[float], more: float) -> list[float]:
    return [v + more for v in values]


def _destroyed(*names: str) -> list[Step]:
    return [on(name, "destroy") for name in names]


def _export_tensor(i: _Interop) -> list[Step]:
    usage = 0x80 | 4 | 8  # STORAGE, COPY_SRC, COPY_DST
    return [
        *i.tensor("t"), i.export("t", "u"), {"expect": "u.usage", "equals": usage},
        {"expect": "u.size", "equals": COUNT * (2 if i.data_type == "float16" else 4)},
        i.buffer("u", [0.0] * COUNT),
    ]


def _export_wrong_tensor(i: _Interop) -> list[Step]:
    return [awaited("c", "createTensor", i.described, out="t"),
            throws("TypeError", i.export("t", "u"))]


def _export_big_tensor(i: _Interop) -> list[Step]:
    """The buffer has 16 MiB; a buffer larger than the maximum tensor is refused."""
    count = 4 << 20
    big = {"dataType": "float32", "shape": [count], "writable": True}
    beyond = {"dataType": "float32", "shape": [{"$expr": "maxTensorByteLength/4+1"}]}
    return [
        awaited("c", "createExportableTensor", beyond, ref("gpu"), out="x", rejects="TypeError"),
        awaited("c", "createExportableTensor", big, ref("gpu"), out="t"),
        on("c", "writeTensor", ref("t"),
            {"$typed": "Float32Array", "length": count, "data": {"$fill": 3}}),
        i.export("t", "u"), {"expect": "u.size", "equals": 4 * count}, i.buffer("u", [3.0] * count),
    ]


def _export_then_destroy_buffer(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), *_destroyed("u"),
            *i.read("t", _NUMBERS)]


def _export_then_destroy_tensor(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), *_destroyed("t"),
            i.buffer("u", _NUMBERS), throws("InvalidStateError", i.export("t", "v"))]


def _write_after_export(i: _Interop) -> list[Step]:
    write = i.write("t", _NUMBERS)
    return [*i.tensor("t"), i.export("t", "u"), throws("TypeError", write),
            i.buffer("u", [0.0] * COUNT), *_destroyed("u"), write, *i.read("t", _NUMBERS)]


def _read_after_export(i: _Interop) -> list[Step]:
    refused = awaited("c", "readTensor", ref("t"), rejects="TypeError")
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), refused, *_destroyed("u"),
            *i.read("t", _NUMBERS)]


def _dispatch_after_export(exported: str) -> Callable[[_Interop], list[Step]]:
    """Refused while a buffer has the tensor, with no computation; accepted afterwards."""
    def about(i: _Interop) -> list[Step]:
        run = i.dispatch("in", "out")
        left = i.read("out", [0.0] * COUNT) if exported == "in" else []
        return [
            *i.graph(), *i.tensor("in", "out"), i.write("in", _NUMBERS), i.export(exported, "u"),
            throws("TypeError", run), *left, *_destroyed("u"), run,
            *i.read("out", [2 * n for n in _NUMBERS]),
        ]

    return about


def _export_twice(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.export("t", "u"), i.export("t", "v"), {"same": ["u", "v"]}]


def _dispatch_gpu_twice(i: _Interop) -> list[Step]:
    both, steps = [i.export("in", "u"), i.export("out", "v")], i.tensor("in", "out")
    for values in (_NUMBERS, _plus(_NUMBERS, 100)):
        steps += [i.write("in", values), *both, i.increment("u", "v"),
                  i.buffer("v", _plus(values, 1)), *_destroyed("u", "v")]
    return steps


def _webnn_dispatch_only(i: _Interop) -> list[Step]:
    return [
        *i.graph(), *i.tensor("in", "out"), i.write("in", _NUMBERS), i.export("in", "u"),
        i.export("out", "v"), *_destroyed("u", "v"), i.dispatch("in", "out"),
        *i.read("out", [2 * n for n in _NUMBERS]),
    ]


def _from_webgpu_then_webnn(i: _Interop) -> list[Step]:
    """x + 1 by the shader, its double by the graph, plus 1 by the shader, without waiting between
    them."""
    both = [i.export("in", "u"), i.export("out", "v"), i.increment("u", "v")]
    return [
        *i.graph(), *i.tensor("in", "out"), i.write("in", _NUMBERS), *both, *_destroyed("u", "v"),
        i.dispatch("out", "in"), *both, i.buffer("v", [2 * n + 3 for n in _NUMBERS]),
    ]


def _destroy_context_after_export(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), *_destroyed("c"),
            i.buffer("u", _NUMBERS)]


def _destroy_device_after_export(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), *_destroyed("gpu", "u"),
            *i.read("t", _NUMBERS)]


def _destroy_device_before_export(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.write("t", _NUMBERS), *_destroyed("gpu"),
            throws("InvalidStateError", i.export("t", "u")), *i.read("t", _NUMBERS)]


ABOUT: dict[str, Callable[[_Interop], list[Step]]] = {
    "export tensor": _export_tensor,
    "export wrong tensor": _export_wrong_tensor,
    "export big tensor": _export_big_tensor,
    "export then destroy buffer": _export_then_destroy_buffer,
    "export then destroy tensor": _export_then_destroy_tensor,
    "write tensor after export": _write_after_export,
    "read after export": _read_after_export,
    "dispatch as input after export": _dispatch_after_export("in"),
    "dispatch as output after export": _dispatch_after_export("out"),
    "export twice": _export_twice,
    "dispatch gpu twice": _dispatch_gpu_twice,
    "webnn dispatch only": _webnn_dispatch_only,
    "dispatch from webgpu then webnn": _from_webgpu_then_webnn,
    "destroy context after export": _destroy_context_after_export,
    "destroy device after export": _destroy_device_after_export,
    "destroy device before export": _destroy_device_before_export,
}


def interop(data_type: str, power: str, about: str) -> list[Step]:
    """The steps of a test, or none if it isn't written here."""
    if about not in ABOUT:
        return []
    made = {"call": "navigator.ml.createContext", "args": [ref("gpu")], "out": "c", "async": True}
    ends = [on("c", "destroy"), on("gpu", "destroy")]
    steps = ABOUT[about](_Interop(data_type))
    return [{"gpuDevice": power, "out": "gpu"}, made, *steps, *ends]

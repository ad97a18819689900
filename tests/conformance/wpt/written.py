"""Steps that the recordings of behaviour lack, written from the draft's text and the tests' names.

The recorder had no GPU, no `opSupportLimits()` and read zeros: some recordings are empty, others
end before their essential step. Here they are completed: `completed(folder, file, test)`. Numbers
that are read back differ from each other and from the contents of a new tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = dict[str, Any]
_ALL_TYPES = ("float32", "float16", "int32", "uint32", "int64", "uint64", "int8", "uint8")


def completed(folder: str, file: str, test: dict[str, Any]) -> list[Step]:
    """The steps of a test: the recorded ones, and those written here."""
    name, recorded = test["name"], test["steps"]
    if name.startswith("interop ") and not recorded:
        setting, _, about = name.removeprefix("interop ").partition(" / ")
        return _interop(*setting.split(), _INTEROP[about]) if about in _INTEROP else []
    if file == "parallel-dispatch" and name in _PARALLEL:
        return _awaited_last(recorded, _PARALLEL[name])
    change = _CHANGES.get(f"{folder}/{file}: {name}")
    return change(recorded) if change else recorded


def added(folder: str, file: str) -> list[dict[str, Any]]:
    """Tests of a file that were not recorded at all."""
    return [{"name": n, "steps": steps} for n, steps in _ADDED.get(f"{folder}/{file}", {}).items()]


def needs_gpu(steps: list[Step]) -> bool:
    return any("gpuDevice" in step for step in steps)


# -- how steps are written
def _ref(name: str) -> Step:
    return {"$ref": name}


def _on(target: str, call: str, *args: Any, **more: Any) -> Step:
    return {"on": target, "call": call, "args": list(args), **more}


def _async(target: str, call: str, *args: Any, **more: Any) -> Step:
    return _on(target, call, *args, **{"async": True, **more})


def _throws(error: str, *calls: Step) -> Step:
    return {"throws": error, "calls": list(calls)}


def _typed(kind: str, values: list[Any]) -> Step:
    return {"$typed": kind, "length": len(values), "data": values}


def _holds(data: str, kind: str, values: list[Any]) -> Step:
    return {"expectData": data, "as": kind, "length": len(values), "equals": values}


def _works(context: str) -> list[Step]:
    """Shows that the context computes: tensors, a graph, a dispatch."""
    described = {"dataType": "int32", "shape": [2], "readable": True, "writable": True}
    return [
        _async(context, "createTensor", described, out="w:x"),
        _async(context, "createTensor", described, out="w:y"),
        {"new": "MLGraphBuilder", "args": [_ref(context)], "out": "w:b"},
        _on("w:b", "input", "x", {"dataType": "int32", "shape": [2]}, out="w:in"),
        _on("w:b", "add", _ref("w:in"), _ref("w:in"), out="w:out"),
        _async("w:b", "build", {"y": _ref("w:out")}, out="w:g"),
        _on(context, "writeTensor", _ref("w:x"), _typed("Int32Array", [3, -4])),
        _on(context, "dispatch", _ref("w:g"), {"x": _ref("w:x")}, {"y": _ref("w:y")}),
        _async(context, "readTensor", _ref("w:y"), out="w:d"),
        _holds("w:d", "Int32Array", [6, -8]),
    ]


def _last(steps: list[Step], key: str, value: str) -> Step:
    return next(s for s in reversed(steps) if s.get(key) == value)


# -- recordings without their end
_PARALLEL = {
    "dispatch queues behind readTensor": [2, 20],
    "same graph: write/dispatch/read, write/dispatch/read, ...": [3, 6, 9, 12],
    "same graph: write/write..., dispatch/read, dispatch/read, ...": [10, 20, 30, 40],
    "same graph: write/write..., dispatch/dispatch..., read/read...": [9, 18, 27, 36],
    "same graph serial inputs: dispatch/dispatch..., read/read...": [1, 2, 4, 8, 16],
    "different graphs: write/write..., dispatch/read, dispatch/read, ...": [1, 4, 9, 16],
    "different graphs: write/write..., dispatch/dispatch..., read/read...": [2, 8, 18, 32],
    "different graphs serial inputs: dispatch/dispatch..., read/read...": [1, 3, 6, 18, 36],
    "different graphs using the same tensors": [216, 72],
}


def _awaited_last(steps: list[Step], values: list[int]) -> list[Step]:
    """Nothing is read before everything is dispatched."""
    reads = [s["out"] for s in steps if s.get("call") == "readTensor"]
    return [
        *({**s, "later": True} if s.get("call") == "readTensor" else s for s in steps),
        *(_holds(r, "Float32Array", [v]) for r, v in zip(reads, values, strict=True)),
    ]


def _usable(steps: list[Step]) -> list[Step]:
    return [*steps, *_works(_last(steps, "call", "navigator.ml.createContext")["out"])]


def _context_of_gpu_device(_: list[Step]) -> list[Step]:
    made = {"call": "navigator.ml.createContext", "args": [_ref("gpu")], "out": "c", "async": True}
    ends = [_on("c", "destroy"), _on("gpu", "destroy")]
    return [{"gpuDevice": "low-power", "out": "gpu"}, made, *_works("c"), *ends]


def _context_is_lost(steps: list[Step]) -> list[Step]:
    context = _last(steps, "call", "destroy")["on"]
    described = {"dataType": "float32", "shape": [1]}
    refused = [
        _async(context, "createTensor", described, out="x", rejects="InvalidStateError"),
        _throws("InvalidStateError",
                {"new": "MLGraphBuilder", "args": [_ref(context)], "out": "x"}),
    ]
    return [*steps, *refused]


def _no_dispatch_after(steps: list[Step]) -> list[Step]:
    return [*steps, _throws("InvalidStateError", _last(steps, "call", "dispatch"))]


def _graph_is_destroyed(steps: list[Step]) -> list[Step]:
    context, described = steps[0]["args"][0]["$ref"], {"dataType": "float32", "shape": [1]}
    graph = _last(steps, "call", "destroy")["on"]
    return [
        *steps, *(_async(context, "createTensor", described, out=name) for name in ("i", "o")),
        _throws("InvalidStateError", _on(
            context, "dispatch", _ref(graph), {"input": _ref("i")}, {"output": _ref("o")}
        )),
        *_works(context),
    ]


def _takes_all_types(steps: list[Step]) -> list[Step]:
    """No data type is unsupported: each is accepted."""
    builder, done = steps[0]["out"], list(steps)
    for kind in _ALL_TYPES:
        done += [
            _on(builder, "input", kind, {"dataType": kind, "shape": [2, 3]}, out="in"),
            _on(builder, "identity", _ref("in"), out="out"),
            {"expect": "out.dataType", "equals": kind}, {"expect": "out.shape", "equals": [2, 3]},
        ]
    return done


def _too_large_to_concat(steps: list[Step]) -> list[Step]:
    builder, largest = steps[0]["out"], {"$expr": "maxTensorByteLength/4"}
    described = {"dataType": "float32", "shape": [largest]}
    return [
        *steps, *(_on(builder, "input", n, described, out=n) for n in ("one", "two")),
        _throws("TypeError", _on(builder, "concat", [_ref("one"), _ref("two")], 0, out="x")),
    ]


def _limits(operator: str, *names: str) -> Callable[[list[Step]], list[Step]]:
    def change(_: list[Step]) -> list[Step]:
        made = {"call": "navigator.ml.createContext", "args": [], "out": "c", "async": True}
        return [made, *({"types": f"{operator}.{n}", "of": "c", "equal": ["uint8"]} for n in names)]

    return change


def _tensor_is(**attributes: Any) -> Callable[[list[Step]], list[Step]]:
    def change(steps: list[Step]) -> list[Step]:
        made = steps[-1]["out"]
        return [*steps, *({"expect": f"{made}.{k}", "equals": v} for k, v in attributes.items())]

    return change


def _tensor_is_destroyed(steps: list[Step]) -> list[Step]:
    """A destroyed tensor is refused; its context goes on."""
    made = steps[0]
    wanted = {**made["args"][0], "writable": True}
    array = _typed("Int32Array", [1, 2, 3, 4, 5, 6])
    write = _on(made["on"], "writeTensor", _ref(made["out"]), array)
    return [{**made, "args": [wanted]}, *steps[1:], _throws("InvalidStateError", write),
            *_works(made["on"])]


def _read_into_larger(steps: list[Step]) -> list[Step]:
    """Bytes beyond the tensor's elements stay unchanged."""
    read, (tensor, array) = steps[-1], steps[-1]["args"]
    count, beyond = 2 * 128 * 128, array["length"] - 2 * 128 * 128
    filled = {**read, "args": [tensor, {**array, "data": {"$fill": 7}}]}
    into = read["into"]
    return [*steps[:-1], filled, _holds(into, "Int32Array", [0] * count),
            _holds(into, "Int32Array", [7] * beyond)]


def _graph_of_scalars(steps: list[Step]) -> list[Step]:
    """The graph computes; `devices` is an extension that the draft only mentions."""
    context, graph = steps[0]["out"], steps[-1]["out"]
    described = {"dataType": "float32", "shape": [], "readable": True, "writable": True}
    return [
        *steps, *(_async(context, "createTensor", described, out=name) for name in ("i", "o")),
        _on(context, "writeTensor", _ref("i"), _typed("Float32Array", [21])),
        _on(context, "dispatch", _ref(graph), {"A": _ref("i")}, {"o": _ref("o")}),
        _async(context, "readTensor", _ref("o"), out="d"), _holds("d", "Float32Array", [42]),
        {"leftOut": "MLGraph.devices"},
    ]


_CREATED, _TENSOR = "validation/createContext: ", "behaviour_traces/tensor: "
_LIMITS = "validation/opSupportLimits: check opSupportLimits data types of "
_CONSTANT = {"constant": True, "readable": False, "writable": False}
_CHANGES: dict[str, Callable[[list[Step]], list[Step]]] = {
    f"{_CREATED}Create context with default MLContextOptions.": _usable,
    f"{_CREATED}Create context with device type: cpu.": _usable,
    f"{_CREATED}Create context with power preference: default.": _usable,
    f"{_CREATED}Create context with power preference: high-performance.": _usable,
    f"{_CREATED}Create context with power preference: low-power.": _usable,
    f"{_CREATED}[createContext] Test creating context with deviceType=cpu, "
    "powerPreference=high-performance.": _usable,
    f"{_CREATED}Create context with GPUDevice.": _context_of_gpu_device,
    "validation/concat: [concat] throw if the output number of elements is too large":
        _too_large_to_concat,
    "validation/destroyContext: Context can be destroyed twice.": _context_is_lost,
    "validation/destroyContext: Executing dispatch() before context destroyed is OK.":
        _no_dispatch_after,
    "validation/destroyGraph: Graph can be destroyed twice.": _graph_is_destroyed,
    "validation/elementwise-unary: [identity] Throw if the data type is not supported for the "
    "operator.": _takes_all_types,
    f"{_LIMITS}logicalAnd": _limits("logicalAnd", "a", "b", "output"),
    f"{_LIMITS}logicalOr": _limits("logicalOr", "a", "b", "output"),
    f"{_LIMITS}logicalXor": _limits("logicalXor", "a", "b", "output"),
    f"{_LIMITS}logicalNot": _limits("logicalNot", "a", "output"),
    f"{_TENSOR}create / float16": _tensor_is(dataType="float16", shape=[2, 3]),
    f"{_TENSOR}create / uint8": _tensor_is(dataType="uint8", shape=[3, 2, 4]),
    f"{_TENSOR}createConstant / int32": _tensor_is(**_CONSTANT, dataType="int32", shape=[4]),
    f"{_TENSOR}createConstant / uint8": _tensor_is(**_CONSTANT, dataType="uint8", shape=[3, 2, 4]),
    f"{_TENSOR}destroyTwice": _tensor_is_destroyed,
    f"{_TENSOR}read / read with larger array": _read_into_larger,
    "behaviour_traces/graph_devices: (unnamed)": _graph_of_scalars,
}

# -- tests that were not recorded
#: The operator that could be computed in place, its reader, the input, and the output.
_UNMODIFIED = {
    "hardSwish": ("hardSwish", "identity", [-4, -1, 1, 4], [0, -1 / 3, 2 / 3, 4]),
    "mul": ("mul", "add", [1, 2, 3, 4], [-4, 0, 12, 20]),
}


def _unmodified(first: str, second: str, given: list[float], wanted: list[float]) -> list[Step]:
    described = {"dataType": "float32", "shape": [4]}
    flags = {**described, "readable": True, "writable": True}
    constant = [_ref("constant")] if first == "mul" else []
    return [
        {"new": "MLGraphBuilder", "args": [_ref("context1")], "out": "b"},
        _on("b", "input", "input", described, out="in"),
        _on("b", "constant", described, _typed("Float32Array", [-2, 0, 3, 4]), out="constant"),
        _on("b", first, _ref("in"), *constant, out="first"),
        _on("b", second, _ref("first"), *constant, out="second"),
        _async("b", "build", {"output": _ref("second")}, out="g"),
        *(_async("context1", "createTensor", flags, out=name) for name in ("i", "o")),
        _on("context1", "writeTensor", _ref("i"), _typed("Float32Array", given)),
        _on("context1", "dispatch", _ref("g"), {"input": _ref("i")}, {"output": _ref("o")}),
        _async("context1", "readTensor", _ref("o"), out="result"),
        {"expectData": "result", "as": "Float32Array", "length": 4, "equals": wanted, "ulp": 2},
        _async("context1", "readTensor", _ref("i"), out="input again"),
        _holds("input again", "Float32Array", given),
    ]


def _too_many_dimensions() -> list[Step]:
    """With nine dimensions; eight are allowed."""
    def described(rank: int) -> Step:
        return {"dataType": "float32", "shape": [2] * rank}

    return [
        {"new": "MLGraphBuilder", "args": [_ref("context1")], "out": "b"},
        *(_throws("TypeError", _on("b", "input", "a", described(rank), out="x"))
          for rank in (9, 10)),
        _on("b", "input", "a", described(8), out="x"),
        {"expect": "x.shape", "equals": [2] * 8},
    ]


def _names_with_null() -> list[Step]:
    described, (given, made) = {"dataType": "float32", "shape": [1]}, ("input\0tensor", "output\0t")
    flags = {**described, "readable": True, "writable": True}
    return [
        {"new": "MLGraphBuilder", "args": [_ref("context1")], "out": "b"},
        _on("b", "input", given, described, out="in"),
        _on("b", "constant", described, _typed("Float32Array", [2]), out="two"),
        _on("b", "mul", _ref("in"), _ref("two"), out="out"),
        _async("b", "build", {made: _ref("out")}, out="g"),
        *(_async("context1", "createTensor", flags, out=name) for name in ("i", "o")),
        _on("context1", "writeTensor", _ref("i"), _typed("Float32Array", [21])),
        _on("context1", "dispatch", _ref("g"), {given: _ref("i")}, {made: _ref("o")}),
        _async("context1", "readTensor", _ref("o"), out="d"), _holds("d", "Float32Array", [42]),
    ]


#: By folder and file.
_ADDED: dict[str, dict[str, list[Step]]] = {
    "behaviour_traces/inputs-are-not-modified": {
        f"input tensor is not modified: {name}": _unmodified(*how)
        for name, how in _UNMODIFIED.items()
    },
    "validation/invalid-rank": {"Throw if rank is too large": _too_many_dimensions()},
    "validation/unprintableNames": {"tensor names can include null bytes": _names_with_null()},
}

# -- tensors that a GPUDevice has in between
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
            {"new": "MLGraphBuilder", "args": [_ref("c")], "out": "b"},
            _on("b", "input", "input", self.described, out="x"),
            _on("b", "add", _ref("x"), _ref("x"), out="sum"),
            _async("b", "build", {"output": _ref("sum")}, out="g"),
        ]

    def tensor(self, *names: str) -> list[Step]:
        wanted = {**self.described, "readable": True, "writable": True}
        return [_async("c", "createExportableTensor", wanted, _ref("gpu"), out=n) for n in names]

    def write(self, tensor: str, values: list[float]) -> Step:
        return _on("c", "writeTensor", _ref(tensor), _typed(self.array, values))

    def read(self, tensor: str, values: list[float]) -> list[Step]:
        return [_async("c", "readTensor", _ref(tensor), out="d"),
                _holds("d", self.array, values)]

    def export(self, tensor: str, buffer: str) -> Step:
        return _on("c", "exportToGPU", _ref(tensor), out=buffer)

    def dispatch(self, tensor: str, output: str) -> Step:
        return _on("c", "dispatch", _ref("g"), {"input": _ref(tensor)}, {"output": _ref(output)})

    def increment(self, source: str, target: str) -> Step:
        return {"increment": [source, target], "on": "gpu", "as": self.array}

    def buffer(self, buffer: str, values: list[float]) -> Step:
        return {"expectBuffer": buffer, "on": "gpu", "as": self.array, "equals": values}


def _interop(data_type: str, power: str, about: Callable[[_Interop], list[Step]]) -> list[Step]:
    made = {"call": "navigator.ml.createContext", "args": [_ref("gpu")], "out": "c", "async": True}
    ends = [_on("c", "destroy"), _on("gpu", "destroy")]
    return [{"gpuDevice": power, "out": "gpu"}, made, *about(_Interop(data_type)), *ends]


def _plus(values: list[float], more: float) -> list[float]:
    return [v + more for v in values]


def _destroyed(*names: str) -> list[Step]:
    return [_on(name, "destroy") for name in names]


def _export_tensor(i: _Interop) -> list[Step]:
    usage = 0x80 | 4 | 8  # STORAGE, COPY_SRC, COPY_DST
    return [
        *i.tensor("t"), i.export("t", "u"), {"expect": "u.usage", "equals": usage},
        {"expect": "u.size", "equals": COUNT * (2 if i.data_type == "float16" else 4)},
        i.buffer("u", [0.0] * COUNT),
    ]


def _export_wrong_tensor(i: _Interop) -> list[Step]:
    return [_async("c", "createTensor", i.described, out="t"),
            _throws("TypeError", i.export("t", "u"))]


def _export_big_tensor(i: _Interop) -> list[Step]:
    """Of 16 MiB; a buffer larger than the maximum tensor is refused."""
    count = 4 << 20
    big = {"dataType": "float32", "shape": [count], "writable": True}
    beyond = {"dataType": "float32", "shape": [{"$expr": "maxTensorByteLength/4+1"}]}
    return [
        _async("c", "createExportableTensor", beyond, _ref("gpu"), out="x", rejects="TypeError"),
        _async("c", "createExportableTensor", big, _ref("gpu"), out="t"),
        _on("c", "writeTensor", _ref("t"),
            {"$typed": "Float32Array", "length": count, "data": {"$fill": 3}}),
        i.export("t", "u"), {"expect": "u.size", "equals": 4 * count}, i.buffer("u", [3.0] * count),
    ]


def _export_then_destroy_buffer(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), *_destroyed("u"),
            *i.read("t", _NUMBERS)]


def _export_then_destroy_tensor(i: _Interop) -> list[Step]:
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), *_destroyed("t"),
            i.buffer("u", _NUMBERS), _throws("InvalidStateError", i.export("t", "v"))]


def _write_after_export(i: _Interop) -> list[Step]:
    write = i.write("t", _NUMBERS)
    return [*i.tensor("t"), i.export("t", "u"), _throws("TypeError", write),
            i.buffer("u", [0.0] * COUNT), *_destroyed("u"), write, *i.read("t", _NUMBERS)]


def _read_after_export(i: _Interop) -> list[Step]:
    refused = _async("c", "readTensor", _ref("t"), rejects="TypeError")
    return [*i.tensor("t"), i.write("t", _NUMBERS), i.export("t", "u"), refused, *_destroyed("u"),
            *i.read("t", _NUMBERS)]


def _dispatch_after_export(exported: str) -> Callable[[_Interop], list[Step]]:
    """Refused while a buffer has the tensor, with no computation; accepted afterwards."""
    def about(i: _Interop) -> list[Step]:
        run = i.dispatch("in", "out")
        left = i.read("out", [0.0] * COUNT) if exported == "in" else []
        return [
            *i.graph(), *i.tensor("in", "out"), i.write("in", _NUMBERS), i.export(exported, "u"),
            _throws("TypeError", run), *left, *_destroyed("u"), run,
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
            _throws("InvalidStateError", i.export("t", "u")), *i.read("t", _NUMBERS)]


_INTEROP: dict[str, Callable[[_Interop], list[Step]]] = {
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

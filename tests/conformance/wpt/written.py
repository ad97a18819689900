"""Steps that the recordings of behaviour lack, written from the draft's text and the tests' names.

The recorder had no GPU, no `opSupportLimits()` and read zeros: some recordings are empty, others
end before their essential step. Here they are completed: `completed(folder, file, test)`. Numbers
that are read back differ from each other and from the contents of a new tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .steps import Step, awaited, holds, on, ref, throws, typed
from .written_interop import interop

_ALL_TYPES = ("float32", "float16", "int32", "uint32", "int64", "uint64", "int8", "uint8")


def completed(folder: str, file: str, test: dict[str, Any]) -> list[Step]:
    """The steps of a test: the recorded ones, and those written here."""
    name, recorded = test["name"], test["steps"]
    if name.startswith("interop ") and not recorded:
        setting, _, about = name.removeprefix("interop ").partition(" / ")
        return interop(*setting.split(), about)
    if file == "parallel-dispatch" and name in _PARALLEL:
        return _awaited_last(recorded, _PARALLEL[name])
    change = _CHANGES.get(f"{folder}/{file}: {name}")
    return change(recorded) if change else recorded


def added(folder: str, file: str) -> list[dict[str, Any]]:
    """Tests of a file that were not recorded at all."""
    return [{"name": n, "steps": steps} for n, steps in _ADDED.get(f"{folder}/{file}", {}).items()]


def needs_gpu(steps: list[Step]) -> bool:
    return any("gpuDevice" in step for step in steps)


def _works(context: str) -> list[Step]:
    """Shows that the context computes: tensors, a graph, a dispatch."""
    described = {"dataType": "int32", "shape": [2], "readable": True, "writable": True}
    return [
        awaited(context, "createTensor", described, out="w:x"),
        awaited(context, "createTensor", described, out="w:y"),
        {"new": "MLGraphBuilder", "args": [ref(context)], "out": "w:b"},
        on("w:b", "input", "x", {"dataType": "int32", "shape": [2]}, out="w:in"),
        on("w:b", "add", ref("w:in"), ref("w:in"), out="w:out"),
        awaited("w:b", "build", {"y": ref("w:out")}, out="w:g"),
        on(context, "writeTensor", ref("w:x"), typed("Int32Array", [3, -4])),
        on(context, "dispatch", ref("w:g"), {"x": ref("w:x")}, {"y": ref("w:y")}),
        awaited(context, "readTensor", ref("w:y"), out="w:d"),
        holds("w:d", "Int32Array", [6, -8]),
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
        *(holds(r, "Float32Array", [v]) for r, v in zip(reads, values, strict=True)),
    ]


def _usable(steps: list[Step]) -> list[Step]:
    return [*steps, *_works(_last(steps, "call", "navigator.ml.createContext")["out"])]


def _context_of_gpu_device(_: list[Step]) -> list[Step]:
    made = {"call": "navigator.ml.createContext", "args": [ref("gpu")], "out": "c", "async": True}
    ends = [on("c", "destroy"), on("gpu", "destroy")]
    return [{"gpuDevice": "low-power", "out": "gpu"}, made, *_works("c"), *ends]


def _context_is_lost(steps: list[Step]) -> list[Step]:
    context = _last(steps, "call", "destroy")["on"]
    described = {"dataType": "float32", "shape": [1]}
    refused = [
        awaited(context, "createTensor", described, out="x", rejects="InvalidStateError"),
        throws("InvalidStateError",
                {"new": "MLGraphBuilder", "args": [ref(context)], "out": "x"}),
    ]
    return [*steps, *refused]


def _no_dispatch_after(steps: list[Step]) -> list[Step]:
    return [*steps, throws("InvalidStateError", _last(steps, "call", "dispatch"))]


def _graph_is_destroyed(steps: list[Step]) -> list[Step]:
    context, described = steps[0]["args"][0]["$ref"], {"dataType": "float32", "shape": [1]}
    graph = _last(steps, "call", "destroy")["on"]
    return [
        *steps, *(awaited(context, "createTensor", described, out=name) for name in ("i", "o")),
        throws("InvalidStateError", on(
            context, "dispatch", ref(graph), {"input": ref("i")}, {"output": ref("o")}
        )),
        *_works(context),
    ]


def _takes_all_types(steps: list[Step]) -> list[Step]:
    """No data type is unsupported: each is accepted."""
    builder, done = steps[0]["out"], list(steps)
    for kind in _ALL_TYPES:
        done += [
            on(builder, "input", kind, {"dataType": kind, "shape": [2, 3]}, out="in"),
            on(builder, "identity", ref("in"), out="out"),
            {"expect": "out.dataType", "equals": kind}, {"expect": "out.shape", "equals": [2, 3]},
        ]
    return done


def _too_large_to_concat(steps: list[Step]) -> list[Step]:
    builder, largest = steps[0]["out"], {"$expr": "maxTensorByteLength/4"}
    described = {"dataType": "float32", "shape": [largest]}
    return [
        *steps, *(on(builder, "input", n, described, out=n) for n in ("one", "two")),
        throws("TypeError", on(builder, "concat", [ref("one"), ref("two")], 0, out="x")),
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
    array = typed("Int32Array", [1, 2, 3, 4, 5, 6])
    write = on(made["on"], "writeTensor", ref(made["out"]), array)
    return [{**made, "args": [wanted]}, *steps[1:], throws("InvalidStateError", write),
            *_works(made["on"])]


def _read_into_larger(steps: list[Step]) -> list[Step]:
    """Bytes beyond the tensor's elements stay unchanged."""
    read, (tensor, array) = steps[-1], steps[-1]["args"]
    count, beyond = 2 * 128 * 128, array["length"] - 2 * 128 * 128
    filled = {**read, "args": [tensor, {**array, "data": {"$fill": 7}}]}
    into = read["into"]
    return [*steps[:-1], filled, holds(into, "Int32Array", [0] * count),
            holds(into, "Int32Array", [7] * beyond)]


def _graph_of_scalars(steps: list[Step]) -> list[Step]:
    """The graph computes; `devices` is an extension that the draft only mentions."""
    context, graph = steps[0]["out"], steps[-1]["out"]
    described = {"dataType": "float32", "shape": [], "readable": True, "writable": True}
    return [
        *steps, *(awaited(context, "createTensor", described, out=name) for name in ("i", "o")),
        on(context, "writeTensor", ref("i"), typed("Float32Array", [21])),
        on(context, "dispatch", ref(graph), {"A": ref("i")}, {"o": ref("o")}),
        awaited(context, "readTensor", ref("o"), out="d"), holds("d", "Float32Array", [42]),
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
    constant = [ref("constant")] if first == "mul" else []
    return [
        {"new": "MLGraphBuilder", "args": [ref("context1")], "out": "b"},
        on("b", "input", "input", described, out="in"),
        on("b", "constant", described, typed("Float32Array", [-2, 0, 3, 4]), out="constant"),
        on("b", first, ref("in"), *constant, out="first"),
        on("b", second, ref("first"), *constant, out="second"),
        awaited("b", "build", {"output": ref("second")}, out="g"),
        *(awaited("context1", "createTensor", flags, out=name) for name in ("i", "o")),
        on("context1", "writeTensor", ref("i"), typed("Float32Array", given)),
        on("context1", "dispatch", ref("g"), {"input": ref("i")}, {"output": ref("o")}),
        awaited("context1", "readTensor", ref("o"), out="result"),
        {"expectData": "result", "as": "Float32Array", "length": 4, "equals": wanted, "ulp": 2},
        awaited("context1", "readTensor", ref("i"), out="input again"),
        holds("input again", "Float32Array", given),
    ]


def _too_many_dimensions() -> list[Step]:
    """With nine dimensions; eight are allowed."""
    def described(rank: int) -> Step:
        return {"dataType": "float32", "shape": [2] * rank}

    return [
        {"new": "MLGraphBuilder", "args": [ref("context1")], "out": "b"},
        *(throws("TypeError", on("b", "input", "a", described(rank), out="x"))
          for rank in (9, 10)),
        on("b", "input", "a", described(8), out="x"),
        {"expect": "x.shape", "equals": [2] * 8},
    ]


def _names_with_null() -> list[Step]:
    described, (given, made) = {"dataType": "float32", "shape": [1]}, ("input\0tensor", "output\0t")
    flags = {**described, "readable": True, "writable": True}
    return [
        {"new": "MLGraphBuilder", "args": [ref("context1")], "out": "b"},
        on("b", "input", given, described, out="in"),
        on("b", "constant", described, typed("Float32Array", [2]), out="two"),
        on("b", "mul", ref("in"), ref("two"), out="out"),
        awaited("b", "build", {made: ref("out")}, out="g"),
        *(awaited("context1", "createTensor", flags, out=name) for name in ("i", "o")),
        on("context1", "writeTensor", ref("i"), typed("Float32Array", [21])),
        on("context1", "dispatch", ref("g"), {given: ref("i")}, {made: ref("o")}),
        awaited("context1", "readTensor", ref("o"), out="d"), holds("d", "Float32Array", [42]),
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

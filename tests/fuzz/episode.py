"""One episode: some dozens of calls on a context, valid ones mixed with odd ones.

Each call is drawn from its own random state (seed, episode, number), so that any subset of an
episode's calls can be repeated without the others: this is how a failure is reduced.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

import webnn_vk as webnn
from tests.conformance.differential.example import Example
from tests.fuzz.odd import label, odd, shown
from webnn_vk import DOMException, MLPromise
from webnn_vk.compiler.ops import OPERATORS

#: Seconds that a call may take.
PATIENCE = 10.0
CALLS = 80
_TYPES = ("float32", "float16", "int32", "uint32", "int64", "uint64", "int8", "uint8")


class Defect(AssertionError):
    """A call that broke a promise; ``kind`` distinguishes failures."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(eq=False)
class Made:
    """An operand, and whether everything that it depends on is small."""

    operand: Any
    small: bool = True


class Episode:
    """``run`` makes the calls with the given numbers. ``said`` counts their outcomes."""

    def __init__(
        self, context: Any, other: Any, uses: dict[str, list[Example]], key: str,
        patience: float = PATIENCE,
    ) -> None:
        self.patience = patience
        self.context, self.other, self.uses, self.key = context, other, uses, key
        self.said: Counter[str] = Counter()
        self.log: list[str] = []
        self.now = ""
        self.graphs: list[Any] = []
        self.tensors: list[Any] = []
        self.constants: list[Any] = []
        self.old: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        self.builder = webnn.MLGraphBuilder(self.context)
        self.made: list[Made] = []
        self.number = 0

    def run(self, numbers: Collection[int], beat: Callable[[str], None] = lambda what: None
            ) -> None:
        names, shares = [*_CALLS], [*_CALLS.values()]
        for number in numbers:
            chance = random.Random(f"{self.key}/{number}")
            kind = chance.choices(names, shares)[0]
            self.now = f"{number}: {kind.__name__}"
            beat(self.now)
            kind(self, chance)

    def end(self) -> None:
        for thing in (*self.tensors, *self.graphs, *self.constants):
            thing.destroy()

    # -- one call --------------------------------------------------------------------------------
    def call(self, name: str, function: Callable[..., Any], /, *args: Any, promises: bool = False,
             also: tuple[type[Exception], ...] = (), named: bool = True, **options: Any) -> Any:
        """The call's result, or its promise's result, or None after a proper refusal."""
        given = [shown(a) for a in args] + [f"{k}={shown(v)}" for k, v in options.items()]
        self.log.append(f"{self.now.split(':')[0]}: {name}({', '.join(given)})")
        try:
            result = function(*args, **options)
        except Exception as error:
            if promises and not _is_signature(error):
                raise Defect(f"{name} raises", f"{name} raised {error!r}, not its promise"
                             ) from error
            return self._refused(name, error, also, named)
        if promises and not isinstance(result, MLPromise):
            raise Defect(f"{name} no promise", f"{name} returned {result!r}")
        if isinstance(result, MLPromise):
            try:
                result = result.result(self.patience)
            except TimeoutError as error:
                raise Defect(f"{name} hangs", f"{name}: no result in {self.patience} s"
                             ) from error
            except Exception as error:
                return self._refused(name, error, also, named)
        self.said["accepted"] += 1
        return result

    def _refused(self, name: str, error: Exception, also: tuple[type[Exception], ...],
                 named: bool) -> None:
        kind = type(error).__name__
        self.said[kind] += 1
        if type(error) is not TypeError and not isinstance(error, (DOMException, *also)):
            raise Defect(f"{name} {kind}", f"{name}: {kind}: {_text(error)}") from error
        text = _text(error)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Defect(f"{name} text", f"{name}: {kind} with no text: {text!a}") from error
        if named and name not in text and "the context is lost" not in text:
            raise Defect(f"{name} unnamed", f"{name}: {kind}: {text}") from error

    # -- what there is -----------------------------------------------------------------------------
    def like(self, array: np.ndarray, constant: bool, chance: random.Random) -> Any:
        """An operand of that type and shape: an existing one, or a new one."""
        if constant:
            return self.builder.constant(array)
        fits = [m.operand for m in self.made[-20:] if m.small and m.operand.shape == array.shape
                and m.operand.data_type == array.dtype.name]
        if fits and chance.random() < 0.8:
            return chance.choice(fits)
        self.number += 1
        made = self.builder.input(
            f"x{self.number}", {"data_type": array.dtype.name, "shape": array.shape})
        self.made.append(Made(made))
        return made

    def _operand(self, chance: random.Random) -> Any:
        return chance.choice(self.made).operand if self.made else self.thing(chance)

    def thing(self, chance: random.Random) -> Any:
        """An object of the library of another kind than expected; or an odd value."""
        if chance.random() < 0.7:
            return odd(chance)
        things = [m.operand for m in self.made[-3:]] + self.old[-3:] + self.tensors[-3:]
        things += [*self.graphs[-2:], *self.constants[-2:], self.builder, self.context]
        return chance.choice(things)

    # -- the builder -------------------------------------------------------------------------------
    def operator(self, chance: random.Random) -> None:
        name = chance.choice([*self.uses])
        use = chance.choice(self.uses[name])
        given: dict[str, Any] = dict(use.arguments)
        try:
            for parameter, arrays in use.operands.items():
                constant = parameter in use.constants
                if isinstance(arrays, list):
                    given[parameter] = [self.like(a, constant, chance) for a in arrays]
                else:
                    given[parameter] = self.like(arrays, constant, chance)
        except webnn.InvalidStateError:  # the builder has built its graph
            if chance.random() < 0.3:
                self._begin()
                return
            given |= {p: [self._operand(chance)] if isinstance(a, list) else self._operand(chance)
                      for p, a in use.operands.items()}
        changes = chance.choice((0, 0, 1, 1, 2))
        for _ in range(changes):
            self._change(name, given, chance)
        method = getattr(self.builder, name)
        order = [p.name for p in OPERATORS[name].parameters if not p.keyword]
        first: list[Any] = []
        if chance.random() < 0.3:
            while order and order[0] in given:
                first.append(given.pop(order.pop(0)))
        if chance.random() < 0.01:
            first.append(self.thing(chance))
        result = self.call(name, method, *first, **given)
        if result is not None:
            outputs = result if isinstance(result, list) else [result]
            small = changes == 0 or sum(_size(o) for o in outputs) < 1 << 12
            used = [v for v in (*first, *given.values()) if isinstance(v, webnn.MLOperand)]
            small = small and all(_size(o) < 1 << 14 for o in used)
            self.made += [Made(o, small) for o in outputs[:50]]

    def _change(self, name: str, given: dict[str, Any], chance: random.Random) -> None:
        parameters = [p.name for p in OPERATORS[name].parameters]
        which = chance.choice([*parameters, "label"])
        match chance.randrange(8):
            case 0 if which in given:
                del given[which]
            case 1:
                given[chance.choice(("axis", "pads", "output", "Label", "self"))] = odd(chance)
            case 2:
                given["label"] = label(chance)
            case 3 if type(given.get(which)) in (list, tuple) and given[which]:
                items = list(given[which])
                items[chance.randrange(len(items))] = self.thing(chance)
                given[which] = items
            case _:
                given[which] = self.thing(chance)

    def input(self, chance: random.Random) -> None:
        made = self.call("input", self.builder.input, *(
            part if chance.random() < 0.5 else self.thing(chance)
            for part in (chance.choice(("a", "b", "\ud800", "x" * 300)), self._descriptor(chance))
        ))
        if made is not None:
            self.made.append(Made(made, _size(made) < 1 << 12))

    def constant(self, chance: random.Random) -> None:
        form = chance.randrange(5)
        if form == 0:
            given = [self._descriptor(chance), self.thing(chance)]
        elif form == 1:
            given = [chance.choice((*_TYPES, "float64", odd(chance))), self.thing(chance)]
        elif form == 2:
            given = [self.thing(chance)]
        elif form == 3 and self.constants:
            given = [chance.choice(self.constants)]
        else:
            given = [self.thing(chance) for _ in range(chance.randrange(4))]
        if chance.random() < 0.1:
            made = self.call("constant", self.builder.constant, *given, **{
                chance.choice(("descriptor", "value", "array", "z")): self.thing(chance)})
        else:
            made = self.call("constant", self.builder.constant, *given)
        if made is not None:
            self.made.append(Made(made, _size(made) < 1 << 12))

    def arithmetic(self, chance: random.Random) -> None:
        if not self.made:
            return
        a, b = chance.choice(self.made).operand, self.thing(chance)
        # Python's own messages, and operands' own methods.
        if isinstance(b, (np.ndarray, np.generic)) or type(b).__module__ == "tests.fuzz.odd":
            return
        operation = chance.choice((
            lambda a, b: a + b, lambda a, b: b - a, lambda a, b: a * b, lambda a, b: a / b,
            lambda a, b: a ** b, lambda a, b: a @ b, lambda a, b: a < b, lambda a, b: -a,
            lambda a, b: bool(a),
        ))
        self.call("arithmetic", operation, a, b, named=False)

    def build(self, chance: random.Random) -> None:
        outputs: Any = {}
        for number in range(chance.choice((1, 1, 2, 5))):
            small = [m.operand for m in self.made if m.small]
            if small:
                outputs[f"y{number}"] = chance.choice(small[-12:])
        if chance.random() < 0.4:
            outputs = chance.choice((
                self.thing(chance), {**outputs, chance.choice(("", "z", 1)): self.thing(chance)},
            ))
            if isinstance(outputs, dict) and any(
                isinstance(o, webnn.MLOperand) and _size(o) >= 1 << 12 for o in outputs.values()
            ):
                return  # an allocation of gigabytes
        graph = self.call("build", self.builder.build, outputs, promises=True)
        if graph is not None:
            self.graphs.append(graph)
            if len(self.graphs) > 4:
                self.graphs.pop(0).destroy()
            if chance.random() < 0.9:
                self.old = [m.operand for m in self.made[-5:]]
                self._begin()

    def make_builder(self, chance: random.Random) -> None:
        self.call("MLGraphBuilder", webnn.MLGraphBuilder, odd(chance), named=False)

    # -- tensors -----------------------------------------------------------------------------------
    def _descriptor(self, chance: random.Random) -> Any:
        made: dict[Any, Any] = {
            "data_type": chance.choice(_TYPES),
            "shape": [chance.choice((1, 2, 3, 4)) for _ in range(chance.choice((0, 1, 1, 2, 4)))],
        }
        if chance.random() < 0.35:
            made[chance.choice(("data_type", "shape", "readable", "writable", "dataType", 3,
                                "importable_to_web_gpu"))] = odd(chance)
        if chance.random() < 0.05:
            made.pop(chance.choice(("data_type", "shape")), None)
        return made

    def create_tensor(self, chance: random.Random) -> None:
        described = {**self._descriptor(chance)}
        if chance.random() < 0.8:
            described |= {"readable": True, "writable": True}
        if chance.random() < 0.3 and self.graphs:
            graph = chance.choice(self.graphs)
            wanted = [*graph.inputs.values(), *graph.outputs.values()]
            described = {**chance.choice(wanted), "readable": True, "writable": True}
        given = described if chance.random() < 0.85 else self.thing(chance)
        if _bytes(given) > 1 << 20:
            return
        self._keep(self.tensors, self.call(
            "create_tensor", self.context.create_tensor, given, promises=True))

    def create_exportable_tensor(self, chance: random.Random) -> None:
        given = self._descriptor(chance)
        if _bytes(given) > 1 << 20:
            return
        self._keep(self.tensors, self.call(
            "create_exportable_tensor", self.context.create_exportable_tensor, given,
            self.thing(chance), promises=True))

    def create_constant_tensor(self, chance: random.Random) -> None:
        name = chance.choice(("create_constant_tensor", "import_constant_tensor"))
        given, data = self._descriptor(chance), self.thing(chance)
        if _bytes(given) > 1 << 20:
            return
        shape, kind = given.get("shape"), given.get("data_type")
        if chance.random() < 0.4 and type(shape) is list and type(kind) is str:
            if kind in _TYPES and all(type(n) is int and 0 <= n <= 4 for n in shape[:9]):
                data = np.ones(shape[:9], kind)
        self._keep(self.constants, self.call(
            name, getattr(self.context, name), given, data, promises=True))

    @staticmethod
    def _keep(items: list[Any], made: Any) -> None:
        if made is not None:
            items.append(made)
            if len(items) > 12:
                items.pop(0).destroy()

    def _tensor(self, chance: random.Random) -> Any:
        if self.tensors and chance.random() < 0.85:
            return chance.choice(self.tensors)
        return self.thing(chance)

    def write_tensor(self, chance: random.Random) -> None:
        tensor = self._tensor(chance)
        data = self.thing(chance)
        if isinstance(tensor, webnn.MLTensor) and chance.random() < 0.4:
            data = np.ones(tensor.shape, tensor.dtype)
        self.call("write_tensor", self.context.write_tensor, tensor, data)

    def read_tensor(self, chance: random.Random) -> None:
        tensor = self._tensor(chance)
        if chance.random() < 0.5:
            self.call("read_tensor", self.context.read_tensor, tensor, promises=True)
        else:
            self.call("read_tensor", self.context.read_tensor, tensor, self.thing(chance),
                      promises=True)

    def look(self, chance: random.Random) -> None:
        if not self.tensors:
            return
        tensor = chance.choice(self.tensors)
        match chance.randrange(4):
            case 0:
                view = self.call("to_numpy", tensor.to_numpy)
                if view is not None:
                    view.release()
            case 1:
                self.call("np.asarray", np.asarray, tensor)
            case 2:
                self.call("export_to_gpu", self.context.export_to_gpu, self._tensor(chance))
            case 3:
                repr(tensor), tensor._repr_html_(), repr(self.builder), repr(self.context)

    def from_dlpack(self, chance: random.Random) -> None:
        thing = self.thing(chance)
        if isinstance(thing, np.ndarray) and thing.nbytes > 1 << 20:
            return
        self._keep(self.tensors, self.call(
            "from_dlpack", webnn.from_dlpack, thing, self.context, also=(BufferError,)))

    # -- graphs ------------------------------------------------------------------------------------
    def dispatch(self, chance: random.Random) -> None:
        graph = chance.choice(self.graphs) if self.graphs else self.thing(chance)
        sides: list[Any] = [{}, {}]
        if self.graphs:
            for side, wanted in zip(sides, (graph.inputs, graph.outputs), strict=True):
                for name, d in wanted.items():
                    fits = [t for t in self.tensors if (t.data_type, t.shape) == (
                        d.data_type, d.shape)]
                    side[name] = chance.choice(fits) if fits else self._tensor(chance)
        if chance.random() < 0.5:
            where = chance.randrange(3)
            if where == 2:
                graph = self.thing(chance)
            else:
                sides[where] = chance.choice((
                    self.thing(chance), {**sides[where], "x": self._tensor(chance)},
                    {**sides[where], odd_key(chance): self.thing(chance)},
                ))
        self.call("dispatch", self.context.dispatch, graph, *sides)

    def compute(self, chance: random.Random) -> None:
        graph = chance.choice(self.graphs) if self.graphs else self.thing(chance)
        name = chance.choice(("compute", "compute", "compute_async"))
        given: Any = {}
        if self.graphs:
            given = {n: np.ones(d.shape, d.numpy_dtype) for n, d in graph.inputs.items()}
        if chance.random() < 0.6:
            given = chance.choice((
                self.thing(chance), {**given, odd_key(chance): self.thing(chance)},
                {n: self.thing(chance) for n in given},
            ))
        if chance.random() < 0.1:
            graph = self.thing(chance)
        self.call(name, getattr(self.context, name), graph, given,
                  promises=name == "compute_async")

    def destroy(self, chance: random.Random) -> None:
        items = chance.choice((self.tensors, self.graphs, self.constants))
        if items:
            self.call("destroy", chance.choice(items).destroy)

    def fence(self, chance: random.Random) -> None:
        self.call("fence", lambda: self.context.fence().wait(self.patience))

    def create_context(self, chance: random.Random) -> None:
        option = chance.choice(("gpu_device", "power_preference", "settings"))
        value = odd(chance)
        if value is None:
            return  # that would be a context
        self.call("create_context", webnn.ml.create_context, **{option: value}, promises=True,
                  also=(ValueError,), named=False)

    def on_a_lost_context(self, chance: random.Random) -> None:
        self.call("write_tensor", self.other.write_tensor, self._tensor(chance), self.thing(chance))
        self.call("create_tensor", self.other.create_tensor, self._descriptor(chance),
                  promises=True)

    def collect(self, chance: random.Random) -> None:
        gc.collect()


def odd_key(chance: random.Random) -> Any:
    return chance.choice(("x1", "", 1, None, "\ud800", (1,), b"x"))


#: Calls and their relative frequencies.
_CALLS = {
    Episode.operator: 500, Episode.input: 40, Episode.constant: 60, Episode.arithmetic: 20,
    Episode.build: 8, Episode.make_builder: 4, Episode.create_tensor: 30,
    Episode.create_exportable_tensor: 5, Episode.create_constant_tensor: 20,
    Episode.write_tensor: 50, Episode.read_tensor: 30, Episode.look: 15, Episode.from_dlpack: 15,
    Episode.dispatch: 25, Episode.compute: 15, Episode.destroy: 8, Episode.fence: 4,
    Episode.create_context: 1, Episode.on_a_lost_context: 5,
}


def _size(operand: Any) -> int:
    size = 1
    for n in operand.shape:
        size *= n
    return size


def _bytes(descriptor: Any) -> int:
    """The bytes that a tensor would need, if known; otherwise 0."""
    try:
        made = webnn.MLTensorDescriptor(descriptor["data_type"], descriptor["shape"])
        return made.byte_length
    except Exception:
        return 0


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:
        raise Defect("no text", f"{type(error).__name__} has no text: {type(other)}") from error


def _is_signature(error: Exception) -> bool:
    """Whether Python itself refuses the call."""
    return isinstance(error, TypeError) and "argument" in str(error) and "()" in str(error)

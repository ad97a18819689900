"""Runs the shaders' function library in NumPy, as any conforming Vulkan device may run it.

A parser and interpreter for the part of GLSL that `shaders/lib` uses. It reads the same text that
becomes SPIR-V, so the two cannot diverge. Every lane of an array is an invocation; branches are
masks. `Device` describes errors of arithmetic within what Vulkan's "Precision and Operation of
SPIR-V Instructions" allows. Operations that GLSL or Vulkan leaves undefined (a shift by 32, an
index or a conversion out of range, a divisor beyond 2^126) raise `UndefinedBehaviour`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.numerics.glsl_parser import NUMPY, VECTORS, Function, Parser

_BITS = {"int": 32, "uint": 32, "int64_t": 64, "uint64_t": 64}
_TINY = np.float32(2.0**-126)
_ANYTHING = np.float32(12345.678)


class UndefinedBehaviour(AssertionError):
    """The library text uses an operation that GLSL or Vulkan leaves undefined."""


# -- how a device computes


@dataclass
class Device:
    """A device's choices within the freedom that Vulkan allows.

    rounding: of + - * and conversions, "nearest", "up", "down", "zero" or "random" (one of the two
    neighbours). division: error of a quotient in ULP before rounding, a number or "random" (within
    ±2, so that ±2.5 is not exceeded); roots use it too, on an inverse root that is 2 ULP off.
    flush: denormal operands and results become 0. contract: a * b + c may be one rounding where not
    `precise`. finite: NaN and infinities are not supported: any result may come out.
    """

    rounding: str = "nearest"
    division: float | str = 0.0
    flush: bool = False
    contract: bool = False
    finite: bool = True
    seed: int = 1

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def operand(self, x: np.ndarray) -> np.ndarray:
        """A float operand as the device sees it."""
        x = np.asarray(x, np.float32)
        if self.flush:
            x = np.where(np.abs(x) < _TINY, np.copysign(np.float32(0), x), x)
        if self.finite:
            x = np.where(np.isfinite(x), x, _ANYTHING)
        return x

    def round(self, exact: np.ndarray, tail: np.ndarray | float = 0.0) -> np.ndarray:
        """exact + tail (float64, |tail| below the last place of exact) as a float32."""
        nearest = exact.astype(np.float32)
        gap = (exact - nearest.astype(np.float64)) + tail
        if self.rounding != "nearest":
            far = np.where(gap > 0, np.float32(np.inf), np.float32(-np.inf))
            other = np.nextafter(nearest, far)
            other = np.where((gap == 0) | ~np.isfinite(nearest), nearest, other)
            match self.rounding:
                case "up":
                    nearest = np.maximum(nearest, other)
                case "down":
                    nearest = np.minimum(nearest, other)
                case "zero":
                    nearest = np.where(np.abs(other) < np.abs(nearest), other, nearest)
                case _:
                    nearest = np.where(self.random.random(nearest.shape) < 0.5, nearest, other)
        return self.operand(nearest)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a + b for operands in float64 (an exact product may be one of them)."""
        total = a + b
        part = total - a
        return self.round(total, (a - (total - part)) + (b - part))

    def divide(self, a: np.ndarray, b: np.ndarray, error: float | str | None = None) -> np.ndarray:
        """a / b with the device's error."""
        error = self.division if error is None else error
        exact = np.asarray(a, np.float64) / b
        if error == "random":
            error = self.random.uniform(-2, 2, np.shape(exact))
        ulp = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
        return self.operand((exact + error * ulp).astype(np.float32))

    def fma(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """a * b + c, in one rounding or in two."""
        product = a.astype(np.float64) * b
        if not self.contract:
            product = self.round(product).astype(np.float64)
        return self.add(product, c.astype(np.float64))

    def exp2(self, x: np.ndarray) -> np.ndarray:
        """2^x, up to 3 + 2 |x| ULP off."""
        wide = self.random.uniform(-2, 2, x.shape) if self.division == "random" else self.division
        exact = np.exp2(x.astype(np.float64))
        ulp = np.spacing(exact.astype(np.float32)).astype(np.float64)
        return self.operand((exact + wide * (1.5 + np.abs(x)) * ulp).astype(np.float32))

    def sqrt(self, x: np.ndarray) -> np.ndarray:
        """1 / inversesqrt(x), both with their errors."""
        return self.divide(np.float64(1), self.inverse_sqrt(x))

    def inverse_sqrt(self, x: np.ndarray) -> np.ndarray:
        """1 / sqrt(x), at most 2 ULP off; of 0 and below anything."""
        x = np.asarray(x, np.float64)
        root = np.sqrt(np.where(x > 0, x, 1.0))
        inverse = self.divide(np.float64(1), root, -1.5 if self.division == 2.0 else None)
        return np.where(x > 0, inverse, _ANYTHING)


# -- running

Value = tuple[str, Any]  # GLSL type; array, or list of the components' values


class Frame:
    """One call: its variables, its active lanes, and the lanes that have returned."""

    def __init__(self, lanes: np.ndarray) -> None:
        self.variables: dict[str, Value] = {}
        self.lanes = lanes
        self.returned = np.zeros_like(lanes)
        self.result: Value | None = None


class Library:
    """The functions of a GLSL text: `library.call("w_exp", array)`, one lane per element."""

    def __init__(self, text: str, device: Device | None = None) -> None:
        functions, constants, self.structures = Parser(text).unit()
        self.functions = {(f.name, *(kind for kind, _ in f.parameters)): f for f in functions}
        self.device = device or Device()
        self.precise = True
        self.constants: dict[str, Value] = {}
        for name, (_, expression) in constants.items():
            self.constants[name] = self.evaluate(expression, Frame(np.ones(1, bool)))

    def call(self, name: str, *arguments: Value) -> Value:
        """Runs a function on values ("float", array); all arrays have the same length."""
        parts = [leaf if isinstance(leaf, list) else [(kind, leaf)] for kind, leaf in arguments]
        length = max(np.size(array) for part in parts for _, array in part)
        with np.errstate(all="ignore"):
            return self._run(self._resolve(name, arguments), list(arguments), np.ones(length, bool))

    def _resolve(self, name: str, arguments: Any) -> Function:
        try:
            return self.functions[(name, *(kind for kind, _ in arguments))]
        except KeyError:
            raise LookupError(f"no {name}({', '.join(kind for kind, _ in arguments)})") from None

    def _run(self, function: Function, arguments: list[Value], lanes: np.ndarray) -> Value:
        frame = Frame(lanes)
        for (_, name), value in zip(function.parameters, arguments, strict=True):
            frame.variables[name] = value
        if not lanes.any():
            return self._nothing(function.result)
        outer, self.precise = self.precise, False
        self.execute(function.body, frame)
        self.precise = outer
        if frame.lanes.any():
            raise UndefinedBehaviour(f"{function.name} ends without a result")
        assert frame.result is not None
        if frame.result[0] != function.result:
            raise TypeError(f"{function.name} gives {frame.result[0]}, not {function.result}")
        return frame.result

    def _nothing(self, kind: str) -> Value:
        """The result of a call without active lanes."""
        if kind in NUMPY:
            return kind, NUMPY[kind](0)
        if kind in VECTORS:
            return kind, [self._nothing(VECTORS[kind][0])] * len(VECTORS[kind][1])
        return kind, [self._nothing(part) for part, _ in self.structures[kind]]

    def execute(self, statements: list[tuple], frame: Frame) -> None:
        for statement in statements:
            if not frame.lanes.any():
                return
            kind = statement[0]
            if kind == "declare":
                _, declared, name, expression, precise = statement
                if expression is None:
                    frame.variables[name] = (declared, None)
                    continue
                self.precise = precise
                value = self.evaluate(expression, frame)
                self.precise = False
                self._check(declared, value, name)
                frame.variables[name] = value
            elif kind == "assign":
                self._assign(statement, frame)
            elif kind == "if":
                condition = self.evaluate(statement[1], frame)[1]
                before = frame.lanes
                frame.lanes = before & condition
                self.execute(statement[2], frame)
                after = frame.lanes
                frame.lanes = before & ~condition
                self.execute(statement[3], frame)
                frame.lanes = frame.lanes | after
            elif kind == "for":
                self.execute([statement[1], statement[2]], frame)
            elif kind == "while":
                before = frame.lanes
                while frame.lanes.any():
                    frame.lanes = frame.lanes & self.evaluate(statement[1], frame)[1]
                    self.execute(statement[2], frame)
                    if statement[3] is not None and frame.lanes.any():
                        self.execute([statement[3]], frame)
                frame.lanes = before & ~frame.returned
            elif kind == "return":
                value, old = self.evaluate(statement[1], frame), frame.result
                frame.result = value if old is None else _merge(frame.lanes, value, old)
                frame.returned = frame.returned | frame.lanes
                frame.lanes = np.zeros_like(frame.lanes)
            else:
                self.evaluate(statement[1], frame)

    @staticmethod
    def _check(declared: str, value: Value, name: str) -> None:
        if value[0] != declared:
            raise TypeError(f"{declared} {name} = {value[0]}")

    def _assign(self, statement: tuple, frame: Frame) -> None:
        _, target, operator, expression = statement
        if operator != "=":
            expression = ("binary", operator[:-1], target, expression)
        value = self.evaluate(expression, frame)
        if target[0] == "field":
            kind, parts = frame.variables[target[1][1]]
            index = self._field(kind, target[2])
            parts = list(parts)
            parts[index] = _merge(frame.lanes, value, parts[index])
            frame.variables[target[1][1]] = (kind, parts)
            return
        old = frame.variables[target[1]]
        self._check(old[0], value, target[1])
        frame.variables[target[1]] = value if old[1] is None else _merge(frame.lanes, value, old)

    def _field(self, kind: str, field: str) -> int:
        if kind in VECTORS:
            return VECTORS[kind][1].index(field)
        return [name for _, name in self.structures[kind]].index(field)

    def evaluate(self, node: tuple, frame: Frame) -> Value:
        match node[0]:
            case "literal":
                return node[1], node[2]
            case "name":
                return frame.variables.get(node[1]) or self.constants[node[1]]
            case "field":
                kind, parts = self.evaluate(node[1], frame)
                return parts[self._field(kind, node[2])]
            case "index":
                kind, table = self.evaluate(node[1], frame)
                index = self.evaluate(node[2], frame)[1]
                self._demand(frame, (index >= 0) & (index < len(table)), "an index out of range")
                return kind, table[np.clip(index, 0, len(table) - 1)]
            case "select":
                condition = np.broadcast_to(self.evaluate(node[1], frame)[1], frame.lanes.shape)
                yes = self._within(frame, condition, node[2])
                no = self._within(frame, ~condition, node[3])
                if yes[0] != no[0]:
                    raise TypeError(f"? {yes[0]} : {no[0]}")
                return _merge(condition, yes, no)
            case "unary":
                return self._unary(node[1], self.evaluate(node[2], frame))
            case "binary":
                return self._binary(node, frame)
        return self._call(node[1], node[2], frame)

    def _within(self, frame: Frame, condition: np.ndarray, node: tuple) -> Value:
        before, frame.lanes = frame.lanes, frame.lanes & condition
        value = self.evaluate(node, frame)
        frame.lanes = before
        return value

    def _demand(self, frame: Frame, fine: Any, what: str) -> None:
        if not np.all(np.broadcast_to(fine, frame.lanes.shape) | ~frame.lanes):
            raise UndefinedBehaviour(what)

    def _unary(self, operator: str, value: Value) -> Value:
        kind, x = value
        if operator == "!":
            return kind, ~x
        if operator == "~":
            return kind, ~x
        return kind, np.negative(x)

    def _product(self, node: tuple, frame: Frame) -> np.ndarray | None:
        """The exact product of a node, if the device contracts it with the sum that contains it."""
        if not self.device.contract or self.precise or node[:2] != ("binary", "*"):
            return None
        (kind, a), (_, b) = self.evaluate(node[2], frame), self.evaluate(node[3], frame)
        if kind != "float":
            return None
        return self.device.operand(a).astype(np.float64) * self.device.operand(b)

    def _binary(self, node: tuple, frame: Frame) -> Value:
        _, operator, left, right = node
        if operator in ("&&", "||"):
            a = np.broadcast_to(self.evaluate(left, frame)[1], frame.lanes.shape)
            b = self._within(frame, a if operator == "&&" else ~a, right)[1]
            return "bool", (a & b if operator == "&&" else a | b)
        if operator in ("+", "-"):
            for product, other in ((left, right), (right, left)):
                exact = self._product(product, frame)
                if exact is not None:
                    rest = self.device.operand(self.evaluate(other, frame)[1]).astype(np.float64)
                    if operator == "-":
                        exact, rest = (exact, -rest) if product is left else (-exact, rest)
                    return "float", self.device.add(exact, rest)
        (kind, a), (other, b) = self.evaluate(left, frame), self.evaluate(right, frame)
        if operator in ("<<", ">>"):
            most = _BITS[kind] - 1
            self._demand(frame, (b >= 0) & (b <= most), f"{operator} by 0 … {most} only")
            amount = np.clip(b, 0, most).astype(NUMPY[kind])
            return kind, (a << amount if operator == "<<" else a >> amount)
        if kind != other:
            raise TypeError(f"{kind} {operator} {other}")
        if operator in ("<", ">", "<=", ">=", "==", "!="):
            if kind == "float":
                a, b = self.device.operand(a), self.device.operand(b)
            return "bool", _COMPARE[operator](a, b)
        if kind == "float":
            a, b = self.device.operand(a), self.device.operand(b)
            return kind, self._float(operator, a, b, frame)
        if operator in ("/", "%"):
            self._demand(frame, b != 0, "an integer divided by 0")
            if kind in ("int", "int64_t"):
                raise NotImplementedError("signed division")
            b = np.where(b == 0, NUMPY[kind](1), b)
        return kind, _INTEGER[operator](a, b)

    def _float(self, operator: str, a: np.ndarray, b: np.ndarray, frame: Frame) -> np.ndarray:
        match operator:
            case "+":
                return self.device.add(a.astype(np.float64), b.astype(np.float64))
            case "-":
                return self.device.add(a.astype(np.float64), -b.astype(np.float64))
            case "*":
                return self.device.round(a.astype(np.float64) * b)
            case "/":
                size = np.abs(b)
                self._demand(frame, (size >= _TINY) & (size <= 2.0**126), "a divisor out of range")
                return self.device.divide(a, b)
        raise TypeError(f"float {operator} float")

    def _call(self, name: str, nodes: list[tuple], frame: Frame) -> Value:
        if name == "umulExtended":
            (_, a), (_, b) = (self.evaluate(node, frame) for node in nodes[:2])
            product = np.asarray(a, np.uint64) * np.asarray(b, np.uint64)
            for node, part in zip(nodes[2:], (product >> np.uint64(32), product), strict=True):
                frame.variables[node[1]] = ("uint", np.asarray(part).astype(np.uint32))
            return "void", None
        arguments = [self.evaluate(node, frame) for node in nodes]
        if name.endswith("[]"):
            return name[:-2], np.array([x for _, x in arguments], NUMPY[name[:-2]])
        if name in VECTORS:
            return name, arguments
        if name in self.structures:
            return name, arguments
        if name in NUMPY:
            return name, self._convert(arguments[0], name, frame)
        if name in _BUILTIN:
            return _BUILTIN[name](self.device, *arguments)
        if any(key[0] == name for key in self.functions):
            return self._run(self._resolve(name, arguments), arguments, frame.lanes.copy())
        raise LookupError(f"no GLSL function {name}")

    def _convert(self, value: Value, kind: str, frame: Frame) -> np.ndarray:
        source, x = value
        x = np.asarray(x)
        if source == "float" and kind != "float":
            bounds = np.iinfo(NUMPY[kind])
            cut = np.trunc(self.device.operand(x).astype(np.float64))
            self._demand(frame, (cut >= bounds.min) & (cut <= bounds.max), f"{kind}() out of range")
            return np.clip(cut, bounds.min, bounds.max).astype(NUMPY[kind])
        if kind == "float" and source != "float":
            return self.device.round(x.astype(np.float64))
        return x.astype(NUMPY[kind])


def _merge(lanes: np.ndarray, new: Value, old: Value) -> Value:
    if new[0] != old[0]:
        raise TypeError(f"{new[0]} over {old[0]}")
    if isinstance(new[1], list):
        return new[0], [_merge(lanes, a, b) for a, b in zip(new[1], old[1], strict=True)]
    return new[0], np.where(lanes, new[1], old[1])


def _bits(kind: str, x: Any) -> np.ndarray:
    return np.ascontiguousarray(x).view(NUMPY[kind])


def _exact(function: Callable) -> Callable:
    """A builtin whose result is exact, on operands as the device sees them."""

    def run(device: Device, *arguments: Value) -> Value:
        kind = arguments[0][0]
        values = [device.operand(x) if kind == "float" else x for _, x in arguments]
        return kind, function(*values)

    return run


def _find_msb(device: Device, value: Value) -> Value:
    x = np.asarray(value[1], np.float64)  # exact, and frexp gives 0 for 0
    return "int", (np.frexp(x)[1] - 1).astype(np.int32)


def _extract(device: Device, value: Value, offset: Value, count: Value) -> Value:
    kind, x = value
    up = NUMPY[kind](32 - int(offset[1]) - int(count[1]))
    return kind, (x << up) >> NUMPY[kind](32 - int(count[1]))


_COMPARE = {
    "<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal, "==": np.equal,
    "!=": np.not_equal,
}
_INTEGER = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.floor_divide, "%": np.remainder,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
}
_BUILTIN: dict[str, Callable[..., Value]] = {
    "floatBitsToUint": lambda device, x: ("uint", _bits("uint", x[1])),
    "floatBitsToInt": lambda device, x: ("int", _bits("int", x[1])),
    "uintBitsToFloat": lambda device, x: ("float", _bits("float", x[1])),
    "abs": _exact(np.abs), "floor": _exact(np.floor), "roundEven": _exact(np.rint),
    "min": _exact(np.minimum), "max": _exact(np.maximum),
    "clamp": _exact(lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    "mix": lambda device, no, yes, condition: _merge(condition[1], yes, no),
    "sqrt": lambda device, x: ("float", device.sqrt(device.operand(x[1]))),
    "inversesqrt": lambda device, x: ("float", device.inverse_sqrt(device.operand(x[1]))),
    "exp2": lambda device, x: ("float", device.exp2(device.operand(x[1]))),
    "fma": lambda device, *x: ("float", device.fma(*(device.operand(v) for _, v in x))),
    "findMSB": _find_msb, "bitfieldExtract": _extract,
}

"""Replays the recorded validation tests and behaviour traces, call by call.

    python -m tests.conformance.wpt.replay [--device cpu|vulkan] [--folder FOLDER] [--file NAME]

Prints ``passed failed skipped``. Fails if a test fails or if an expectation is left out that
``skipped.json`` does not name. A test counts as skipped if one of its expectations is left out;
``in part`` counts skipped tests in which other expectations were checked.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

import webnn_vk
from tests.conformance.wpt import gpu_steps, suite, written
from tests.conformance.wpt.conformance import Tally
from webnn_vk import MLGraphBuilder, MLOperand, MLPromise, Settings
from webnn_vk.compiler.ops import OPERATORS

_TYPED = {
    "Float32Array": np.float32,
    "Float16Array": np.float16,
    "Float64Array": np.float64,
    "Int8Array": np.int8,
    "Uint8Array": np.uint8,
    "Int16Array": np.int16,
    "Uint16Array": np.uint16,
    "Int32Array": np.int32,
    "Uint32Array": np.uint32,
    "BigInt64Array": np.int64,
    "BigUint64Array": np.uint64,
}
_ERRORS = {
    "TypeError": TypeError,
    "InvalidStateError": webnn_vk.InvalidStateError,
    "OperationError": webnn_vk.OperationError,
    "NotSupportedError": webnn_vk.NotSupportedError,
    "UnknownError": webnn_vk.UnknownError,
}
UNDEFINED = object()


class JavaScriptOnly(Exception):
    """A value or an expectation that only JavaScript has; the message is its category."""


class Mismatch(Exception):
    """An expectation that was not met."""


class Replay:
    """One file's tests on one device. Ids live as long as the file."""

    def __init__(self, device: str) -> None:
        self.settings = replace(Settings.from_environment(), device=device)
        self.ids: dict[str, Any] = {}
        self.contexts: list[Any] = []
        #: Promises whose rejection is awaited at the end of the test, and the buffer they fill.
        self.pending: list[tuple[MLPromise, str, str | None]] = []
        #: Ids whose contents come from a value that only JavaScript has.
        self.unknown: set[str] = set()
        #: How many elements of a result were checked, by id.
        self.seen: dict[str, int] = {}
        #: Expectations left out, by category.
        self.left_out: list[str] = []
        #: How many expectations of the current test were met.
        self.met = 0

    def close(self) -> None:
        for context in self.contexts:
            context.destroy()

    # -- values --------------------------------------------------------------------------------
    def value(self, v: Any) -> Any:
        if isinstance(v, list):
            return [self.value(x) for x in v]
        if not isinstance(v, dict):
            return v
        key = next((k for k in v if k.startswith("$")), None)
        match key:
            case None:
                return {k: self.value(x) for k, x in v.items() if x != {"$undefined": True}}
            case "$ref":
                return self.ids[v[key]]
            case "$undefined":
                return UNDEFINED
            case "$bigint":
                return int(v[key])
            case "$float":
                return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-0": -0.0}[
                    v[key]
                ]
            case "$typed":
                return _typed(v)
            case "$arraybuffer":
                return _bytes(v[key], v.get("data"))
            case "$sharedarraybuffer":
                return bytearray(v[key])
            case "$expr":
                return self._expression(v[key])
            case "$prop":
                name, attribute = v[key].split(".")
                return getattr(self.ids[name], suite.snake(attribute))
            case "$promise":
                return MLPromise()
            case "$date":
                raise JavaScriptOnly("a Date as a number")
        raise JavaScriptOnly(f"value {key}")

    def _expression(self, text: str) -> int:
        limits = self.contexts[-1].op_support_limits()
        match = re.fullmatch(r"maxTensorByteLength((?:[/*]\d+|\+\d+|-\d+)*)", text.replace(" ", ""))
        if not match:
            raise JavaScriptOnly(f"expression {text}")
        result = limits["max_tensor_byte_length"]
        for operator, number in re.findall(r"([/*+-])(\d+)", match[1]):
            n = int(number)
            result = {"/": result // n, "*": result * n, "+": result + n, "-": result - n}[operator]
        return result

    # -- steps ---------------------------------------------------------------------------------
    def test(self, steps: list[dict[str, Any]]) -> None:
        self.left_out.clear()
        self.pending.clear()
        self.met = 0
        # The calls of a JavaScript task follow each other without a pause: other threads wait until
        # this one has finished.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            for step in steps:
                self.step(step)
        finally:
            sys.setswitchinterval(interval)
        for promise, name, _ in self.pending:
            _expect_error(lambda promise=promise: promise.result(timeout=60), name, None)
            self.met += 1

    def step(self, step: dict[str, Any]) -> None:
        if "throws" in step:
            self._throws(step)
        elif "new" in step:
            self.ids[step["out"]] = MLGraphBuilder(*self.value(step["args"]))
        elif "call" in step:
            self._call(step)
        elif "get" in step:
            result = getattr(self.ids[step["on"]], suite.snake(step["get"]))
            if step.get("async"):
                result.result(timeout=60)
        elif "expect" in step:
            name, attribute = step["expect"].split(".")
            found = getattr(self.ids[name], suite.snake(attribute))
            found = list(found) if isinstance(found, tuple) else found
            wanted = self.value(step["equals"])
            wanted = list(wanted) if isinstance(wanted, tuple) else wanted
            if found != wanted:
                raise Mismatch(f"{step['expect']} is {found}, not {wanted}")
            self.met += 1
        elif "expectData" in step:
            self._expect_data(step)
        elif "detach" in step:
            self._detach(step["detach"])
        elif "leftOut" in step:
            self.left_out.append(step["leftOut"])
        elif "gpuDevice" in step:
            gpu_steps.gpu_device(self, step)
        elif "increment" in step:
            gpu_steps.increment(self, step)
        elif "expectBuffer" in step:
            found = gpu_steps.found_in_buffer(self, step, _TYPED[step["as"]]).tolist()
            self._compare(step["expectBuffer"], found, step["equals"])
        elif "types" in step:
            self._compare(step["types"], gpu_steps.types(self, step), step["equal"])
        elif "same" in step:
            one, other = (self.ids[name] for name in step["same"])
            if one is not other:
                raise Mismatch(f"{one} is not {other}")
            self.met += 1
        else:
            raise Mismatch(f"unknown step {sorted(step)}")

    def _compare(self, what: str, found: list[Any], wanted: list[Any]) -> None:
        if found != wanted:
            raise Mismatch(f"{what} is {found[:16]}, not {wanted[:16]}")
        self.met += 1

    def _detach(self, name: str) -> None:
        self.left_out.append("a detached buffer")
        # JavaScript rejects the read that fills the buffer; here it has to succeed.
        for promise, _, into in self.pending:
            if into == name:
                promise.result(timeout=60)
        self.pending = [entry for entry in self.pending if entry[2] != name]

    def _throws(self, step: dict[str, Any]) -> None:
        raised = False

        def act() -> None:
            nonlocal raised
            try:
                for inner in step["calls"]:
                    self.step(inner)
            except Exception:
                raised = True
                raise

        try:
            if not step["calls"]:
                raise JavaScriptOnly("a call that is not in the recording")
            _expect_error(act, step["throws"], step.get("messageMatches"))
            self.met += 1
        except JavaScriptOnly as error:
            self.left_out.append(str(error))
        except Mismatch:
            if raised or not _mentions(step["calls"], "$bigint"):
                raise
            self.left_out.append("a BigInt as a number of another kind")

    def _call(self, step: dict[str, Any]) -> None:
        try:
            result = self._invoke(step)
        except JavaScriptOnly as error:
            if "rejects" not in step:
                raise
            self.left_out.append(str(error))
            return
        if step.get("async"):
            if "rejects" in step:
                self.pending.append((result, step["rejects"], step.get("into")))
                return
            if not step.get("later"):
                result = result.result(timeout=60)
        out = step.get("out")
        self.seen.pop(str(out), None)  # ids of written steps occur again
        if isinstance(out, list):
            self.ids.update(zip(out, result, strict=True))
        elif out is not None:
            self.ids[out] = result
        # The contents of a SharedArrayBuffer go where the call takes them.
        used = _references(step["args"])
        if _mentions(step["args"], "$sharedarraybuffer") or used & self.unknown:
            self.unknown |= used.union([out] if isinstance(out, str) else out or ())

    def _invoke(self, step: dict[str, Any]) -> Any:
        args = [self.value(a) for a in step["args"]]
        while args and args[-1] is UNDEFINED:
            args.pop()
        if step["call"] == "navigator.ml.createContext":
            return self._create_context(args)
        target = self.ids[step["on"]]
        method = suite.snake(step["call"])
        if "into" in step:
            args = self._into(step, args)
        if isinstance(target, MLGraphBuilder) and method in OPERATORS:
            return _operator(target, method, args)
        return getattr(target, method)(*[_descriptor(a) for a in args])

    def _create_context(self, args: list[Any]) -> Any:
        if args and not isinstance(args[0], dict):
            promise = webnn_vk.ml.create_context(args[0])
            self.contexts.append(promise.result(timeout=60))
            return promise
        options = {suite.snake(k): v for k, v in (args[0] if args else {}).items()}
        # The suite still passes the deviceType of older drafts.
        options.pop("device_type", None)
        promise = webnn_vk.ml.create_context(settings=self.settings, **options)
        if promise.exception(timeout=60) is None:
            self.contexts.append(promise.result())
        return promise

    def _into(self, step: dict[str, Any], args: list[Any]) -> list[Any]:
        self.ids[step["into"]] = args[-1]
        return args

    def _expect_data(self, step: dict[str, Any]) -> None:
        held = self.ids[step["expectData"]]
        if isinstance(held, MLPromise):
            held = held.result(timeout=60)
        data = np.asarray(memoryview(held))
        found = np.frombuffer(data.tobytes(), _TYPED[step["as"]])
        if len(found) < step["length"]:
            raise Mismatch(f"{len(found)} elements, not {step['length']}")
        # A longer buffer is checked in parts, in consecutive steps.
        start = self.seen.get(step["expectData"], 0)
        found = found[start:]
        self.seen[step["expectData"]] = start + step["length"]
        expected = step["equals"]
        if isinstance(expected, dict):
            expected = _typed({"length": len(found), "$typed": step["as"], "data": expected})
        elif expected == "zeros":
            expected = np.zeros(len(found))
        wanted = [int(x) if isinstance(x, str) else x for x in expected]
        if found[: len(wanted)].tolist() != list(np.asarray(wanted, found.dtype).tolist()):
            if step["expectData"] in self.unknown:
                self.left_out.append("what a SharedArrayBuffer held")
                return
            raise Mismatch(f"data {found[:16].tolist()}, not {wanted[:16]}")
        self.met += 1


def _mentions(value: Any, key: str) -> bool:
    """Whether a recorded value has ``key`` anywhere inside."""
    if isinstance(value, dict):
        return key in value or any(_mentions(v, key) for v in value.values())
    return isinstance(value, list) and any(_mentions(v, key) for v in value)


def _references(value: Any) -> set[str]:
    """The ids that a recorded value refers to."""
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*map(_references, value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()


def _operator(builder: MLGraphBuilder, method: str, args: list[Any]) -> Any:
    """Positional arguments, and a trailing dictionary as keywords."""
    record = OPERATORS[method]
    positional = sum(not p.keyword for p in record.parameters)
    options = args[positional:] if len(args) > positional else []
    given = {}
    if options and options[0] is not UNDEFINED:
        if not isinstance(options[0], dict):
            raise TypeError(f"{method}: options {options[0]!r}")
        given = {suite.snake(k): v for k, v in options[0].items()}
    args = [a for a in args[:positional] if a is not UNDEFINED]
    _only_javascript(record, args, given)
    return getattr(builder, method)(*args, **given)


def _only_javascript(record: Any, args: list[Any], options: dict[str, Any]) -> None:
    """Raises for arguments that WebIDL would convert and Python refuses with TypeError."""
    known = {p.name for p in record.parameters} | {"label"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise JavaScriptOnly(f"an unknown member {', '.join(unknown)} in a dictionary")


def _descriptor(value: Any) -> Any:
    if not isinstance(value, dict) or any(isinstance(v, MLOperand) for v in value.values()):
        return value
    if any(type(v).__name__ == "MLTensor" for v in value.values()):
        return value
    known = ("dataType", "shape", "readable", "writable")
    if set(value) <= set(known) or "dataType" in value or "dataTypeB" in value:
        return {suite.snake(k): v for k, v in value.items()}
    return value


def _typed(v: dict[str, Any]) -> np.ndarray:
    dtype, length, data = _TYPED[v["$typed"]], v["length"], v.get("data", "zeros")
    result = np.zeros(length, dtype)
    if isinstance(data, dict) and "$fill" in data:
        result[:] = _number(data["$fill"])
    elif isinstance(data, dict) and "$truncated" in data:
        first = [_number(x) for x in data["$truncated"]]
        result[: len(first)] = first
    elif isinstance(data, list):
        result[:] = [_number(x) for x in data]
    return result


def _number(x: Any) -> Any:
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-0": -0.0}
    if isinstance(x, dict):
        x = x.get("$bigint", x.get("$float"))
    return special[x] if x in special else int(x) if isinstance(x, str) else x


def _bytes(length: int, data: Any) -> bytearray:
    return bytearray(data) if isinstance(data, list) else bytearray(length)


def _expect_error(act: Any, name: str, message: str | None) -> None:
    try:
        act()
    except _ERRORS[name] as error:
        if message and not re.search(message, str(error)):
            raise Mismatch(f"the message {str(error)!r} lacks {message}") from error
        return
    except JavaScriptOnly:
        raise
    except Exception as error:
        raise Mismatch(f"{type(error).__name__} ({error}) where {name} is expected") from error
    raise Mismatch(f"nothing raised where {name} is expected")


def run_file(folder: str, file: str, device: str, tally: Tally) -> None:
    """Replays one file and counts its tests in ``tally``."""
    replay = Replay(device)
    seen: dict[str, int] = {}
    try:
        for test in [*suite.load(folder, file)["tests"], *written.added(folder, file)]:
            variant = test.get("variant")
            title = f"{file}: {test['name']}" + (f" {variant}" if variant else "")
            seen[title] = seen.get(title, 0) + 1
            if seen[title] > 1:
                title += f" #{seen[title]}"
            _run_test(replay, folder, title, test, tally)
    finally:
        replay.close()


def _run_test(replay: Replay, folder: str, title: str, test: dict, tally: Tally) -> None:
    listed = title in suite.skipped()[folder]
    steps = written.completed(folder, title.partition(":")[0], test)
    if written.needs_gpu(steps) and replay.settings.device == "cpu":
        # Its memory doesn't belong to a GPUDevice: tests/device/gpu/test_contexts_on_devices.py
        tally.skipped += 1
        return
    try:
        replay.test(steps)
    except Exception as error:
        tally.failed += 1
        tally.failures.append(f"{title}: {type(error).__name__}: {error}")
        return
    if test["name"] == "$setup":
        return
    if not (replay.met or replay.left_out):
        tally.failed += 1
        tally.failures.append(f"{title}: it checks nothing")
        return
    if not replay.left_out:
        if listed:
            tally.failed += 1
            tally.failures.append(f"{title}: passes, but is listed as left out")
        tally.passed += not listed
        return
    tally.skipped += 1
    tally.in_part += replay.met > 0
    if not listed:
        tally.unlisted += 1
        tally.failures.append(f"{title}: left out {replay.left_out[0]}, but not listed")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", choices=("validation", "behaviour_traces"))
    parser.add_argument("--file")
    options = parser.parse_args(arguments)
    if not suite.PRESENT:
        print(f"the suite is not at {suite.SUITE}", file=sys.stderr)
        return 2
    tally = Tally()
    folders = (options.folder,) if options.folder else ("validation", "behaviour_traces")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for folder in folders:
            for file in suite.files(folder):
                if options.file in (None, file):
                    run_file(folder, file, options.device, tally)
    for failure in tally.failures:
        print(failure[:300])
    print(
        f"passed {tally.passed} failed {tally.failed} skipped {tally.skipped} "
        f"(in part {tally.in_part})"
    )
    return 0 if tally.ok else 1


if __name__ == "__main__":
    sys.exit(main())

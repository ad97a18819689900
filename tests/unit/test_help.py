"""The text of `help()` for every public function and method (test_public_names: that there is any,
and types)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import webnn_vk
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import ALL_TYPES

#: The specification's interfaces: each of their methods names its section, or says that it is an
#: extension.
SPECIFIED = {"ML", "MLContext", "MLGraphBuilder", "MLGraph", "MLTensor"}
#: For asyncio and for the code that resolves the promise; `dir()` leaves them out.
OF_PROMISES = {
    "send", "throw", "close", "resolve", "reject", "resolved", "rejected", "set_result",
    "set_exception", "set_running_or_notify_cancel",
}
BLOCKING = re.compile(r"\bat once\b|\bblock|\bwaits?\b|\bwaited\b", re.IGNORECASE)
ERRORS = re.compile(r"\w+Error\b|\b(raises nothing|never raises)\b", re.IGNORECASE)
SECTION = re.compile(r"§\d|\bextension\b")


def members(thing: type) -> Iterator[tuple[str, Any]]:
    """Public names of a class and of its bases in this package, with their values."""
    for name in dir(thing):
        owner = next((c for c in thing.__mro__ if name in vars(c)), object)
        hidden = thing.__name__ == "MLPromise" and name in OF_PROMISES
        if not name.startswith("_") and not hidden and owner.__module__.startswith("webnn_vk"):
            value = vars(owner)[name]
            yield name, getattr(value, "__func__", value)


def public() -> dict[str, tuple[type | None, str, Any]]:
    """Path → the class, the name and the function."""
    try:
        from webnn_vk import gpu
    except ImportError:  # no Vulkan loader
        gpu = None
    found: dict[str, tuple[type | None, str, Any]] = {}
    for package in (webnn_vk, gpu):
        for name in getattr(package, "__all__", ()):
            thing = getattr(package, name)
            path = f"{package.__name__}.{name}"
            if inspect.isfunction(thing):
                found[path] = None, name, thing
            if inspect.isclass(thing):
                for member, value in members(thing):
                    if inspect.isfunction(value):
                        found[f"{path}.{member}"] = thing, member, value
    return found


PUBLIC = public()


def text(path: str) -> str:
    """The docstring on one line."""
    return " ".join((inspect.getdoc(PUBLIC[path][2]) or "").split())


def test_there_is_something_to_look_at() -> None:
    assert len(PUBLIC) > len(OPERATORS) + 20
    assert {"webnn_vk.MLContext.read_tensor", "webnn_vk.MLGraphBuilder.conv2d"} <= set(PUBLIC)


def faults(path: str) -> Iterator[str]:
    """The missing parts of a method's docstring."""
    owner, _, function = PUBLIC[path]
    words = text(path)
    signature = inspect.signature(function)
    if not ERRORS.search(words):
        yield "which errors it raises or rejects with"
    if "MLPromise" not in str(signature.return_annotation) and not BLOCKING.search(words):
        yield "whether it blocks"
    if owner is not None and owner.__name__ in SPECIFIED and not SECTION.search(words):
        yield "its section, or that it is an extension"


@pytest.mark.parametrize("path", PUBLIC)
def test_methods_say_what_users_look_for(path: str) -> None:
    assert list(faults(path)) == []


def test_the_scan_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    class MLContext:
        def compute(self, graph):
            """Run a graph."""

    monkeypatch.setitem(PUBLIC, "x", (MLContext, "compute", MLContext.compute))
    assert len(list(faults("x"))) == 3


@pytest.mark.parametrize("name", OPERATORS)
def test_builder_methods_name_operands_types_and_ranks(name: str) -> None:
    record, words = OPERATORS[name], text(f"webnn_vk.MLGraphBuilder.{name}")
    assert words.endswith(f"Specification: {record.section}.")
    lines = inspect.getdoc(PUBLIC[f"webnn_vk.MLGraphBuilder.{name}"][2]).splitlines()
    for operand in record.limits:
        (line,) = [line for line in lines if line.startswith(f"    {operand}: ")]
        types, _, rank = line.split(": ", 1)[1].partition("; ")
        limit = record.limit(operand)
        if types.startswith("as "):
            assert limit.types == record.limit(types.removeprefix("as ")).types
        else:
            listed = ALL_TYPES if types == "any data type" else tuple(types.split(", "))
            assert set(listed) == set(limit.types)
        low, high = limit.rank
        if rank or not types.startswith("as "):
            assert rank in ({"any rank"} if (low, high) == (0, 8) else
                            {f"rank {low}", f"rank {low} … {high}"})

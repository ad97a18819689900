"""One record per ONNX operator: domain, name, opset range and the function that maps it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any

import numpy as np

from webnn_vk.support.cached_property import cached_property
from webnn_vk.support.dataclass import dataclass

from .values import Tensor

NEWEST = 10**6
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Record:
    """``function(c, *inputs, **attributes)`` maps a node of opset ``first`` … ``last`` to calls of
    the builder."""

    domain: str
    name: str
    first: int
    last: int
    function: Callable[..., Any]
    #: Whether storage-only types (int16, int4 …) may pass: movement and quantisation.
    storage: bool
    #: Whether the function takes sequences or missing knowledge itself (control flow).
    raw: bool

    # Of the few operators that a process meets, so that an import doesn't inspect 241 functions.
    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())[1:]

    @cached_property
    def _positional(self) -> list[inspect.Parameter]:
        return [p for p in self._parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    @cached_property
    def inputs(self) -> int | None:
        """The bound of the positional inputs; None: any number."""
        if any(p.kind is p.VAR_POSITIONAL for p in self._parameters):
            return None
        return len(self._positional)

    @cached_property
    def required(self) -> tuple[bool, ...]:
        """Which of the positional inputs are required."""
        return tuple(
            p.default is p.empty and "None" not in str(p.annotation) for p in self._positional
        )

    @cached_property
    def _named(self) -> dict[str, Any]:
        # Annotations are text: a dataclass is found by its name in the function's module.
        scope = vars(sys.modules[self.function.__module__])
        return {
            p.name: scope.get(p.annotation)
            for p in self._parameters if p.kind is p.KEYWORD_ONLY
        }

    @cached_property
    def groups(self) -> Mapping[str, type]:
        """Parameters that take several attributes at once: dataclasses, by the parameter's name."""
        return {
            name: kind for name, kind in self._named.items()
            if is_dataclass(kind) and kind is not Tensor
        }

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes."""
        return frozenset(self._named.keys() - self.groups.keys()).union(
            f.name for kind in self.groups.values() for f in fields(kind)
        )

    def arguments(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """A node's attributes as the function takes them."""
        given = dict(attributes)
        for name, kind in self.groups.items():
            own = {f.name: given.pop(f.name) for f in fields(kind) if f.name in given}
            given[name] = kind(**own)
        return given


_RECORDS: dict[tuple[str, str], list[Record]] = {}


def onnx_operator(
    *names: str,
    first: int = 1,
    last: int = NEWEST,
    domain: str = "",
    storage: bool = False,
    raw: bool = False,
    moved: tuple[str, ...] = (),
    since: int = 1,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function for operators ``names`` of ``domain``. The inputs ``moved``
    were attributes before opset ``since``."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if moved:
            options: dict[str, Any] = {"domain": domain, "storage": storage, "raw": raw}
            onnx_operator(*names, first=first, last=since - 1, **options)(_older(function, moved))
            return onnx_operator(*names, first=since, last=last, **options)(function)
        for name in names:
            entry = Record(domain, name, first, last, function, storage, raw)
            entries = _RECORDS.setdefault((domain, name), [])
            clash = [e for e in entries if e.first <= last and first <= e.last]
            assert not clash, f"two records for {domain} {name} {first}…{last}"
            entries.append(entry)
        return function

    return register


def _older(function: Callable[..., Any], moved: tuple[str, ...]) -> Callable[..., Any]:
    """The function for opsets in which the inputs ``moved`` are attributes."""

    @wraps(function)
    def older(c: Any, *inputs: Any, **attributes: Any) -> Any:
        for name in moved:
            if name in attributes:
                attributes[name] = c.conversion.tensor(np.asarray(attributes[name]))
        return function(c, *inputs, **attributes)

    signature = inspect.signature(function)
    parameters = [
        p.replace(kind=p.KEYWORD_ONLY) if p.name in moved else p
        for p in signature.parameters.values()
    ]
    parameters.sort(key=lambda p: p.kind)
    older.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return older


def find(domain: str, name: str, version: int) -> Record | None:
    """The record of an operator at an opset version, or None."""
    for record in _RECORDS.get((domain, name), ()):
        if record.first <= version <= record.last:
            return record
    return None

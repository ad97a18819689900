"""A graph with named dimensions in files: ``serial``'s files for graphs that are compiled for many
shapes.

They hold the graph as the builder collected it (`stored_graph`), the sizes in it that are known at
dispatch as expressions (`types.expressions`), and what the builder decided.
Programs are not stored: the graph is compiled again where it is loaded, with the stored SPIR-V in
place of the GLSL compiler. The files are not trusted: see ``serial``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.support.dataclass import dataclass

from ..ir import Value
from ..passes.rewrite import Substitution
from ..types.data_types import empty_dimensions
from ..types.dimensions import MLDynamicDimension
from ..types.expressions import OPERATIONS, Expressions
from ..types.sizes import Trace
from .data_file import DATA, DataReader, DataWriter
from .json_forms import checked, form_of
from .shaped_program import ShapedGraph, shaped_graph
from .stored_graph import StoredGraph, graph_of, stored

FORMAT, VERSION = "webnn_vk graph with named dimensions", 3
TEXT = "program.json"


@dataclass(frozen=True)
class LoadedGraph:
    """A graph read from files, and the SPIR-V of kernels that it was compiled to. ``in_place``: no
    copies of donated inputs are accepted."""

    graph: ShapedGraph
    modules: Mapping[KernelSpec, bytes]
    in_place: bool


def save(
    shaped: ShapedGraph, in_place: bool, folder: Path,
    elements: Callable[[Value], np.ndarray | None], modules: Mapping[KernelSpec, bytes],
) -> None:
    """Write a graph to an existing folder. ``elements`` reads a constant."""
    graph, trace = shaped.graph, shaped.trace
    filled = Substitution(
        (value, Value(value.descriptor, data=elements(value)))
        for value in graph.constants() if value.data is None
    )
    graph = filled.rebuild(graph, map(filled.apply, graph.nodes))
    with open(folder / DATA, "wb") as file:
        writer = DataWriter(file)
        form = form_of(StoredGraph).write(writer, stored(graph, given=True))
        text = {
            "format": FORMAT, "version": VERSION, "graph": form,
            "dimensions": [[n, *bounds] for n, bounds in trace.expressions.bounds.items()],
            # JSON makes lists of the sums, which are tuples.
            "atoms": trace.expressions.atoms, "sizes": [*writer.sizes],
            "examples": trace.examples,
            "guards": _guards(trace) if trace.folds else None,
            "donated": dict(graph.donated), "in_place": in_place,
            "kernels": [spec.to_json() for spec in modules],
            "modules": [writer.bytes(module) for module in modules.values()],
        }
    (folder / TEXT).write_text(json.dumps(text, allow_nan=False, ensure_ascii=True), "utf-8")


def _guards(trace: Trace) -> list[Any]:
    guards = trace.decided
    return [
        [[key, *(None if math.isinf(end) else end for end in ends)]
         for key, ends in guards.intervals.items()],
        [[*comparison, truth] for comparison, truth in guards.truths.items()],
    ]


def load(text: dict[str, Any], reader: DataReader) -> LoadedGraph:
    """The graph that ``save`` wrote: ``text`` is its JSON. ValueError and other errors of its form
    if ``save`` did not write it."""
    if text["version"] != VERSION:
        raise ValueError(f"{FORMAT} of version {text['version']!r}; {VERSION} is what this reads")
    expressions = _expressions(text)
    examples = {
        name: checked(text["examples"][name], int) for name in expressions.bounds
    }
    if any(not low <= examples[n] <= high for n, (low, high) in expressions.bounds.items()):
        raise ValueError(f"the examples {examples} are outside of {expressions.bounds}")
    guarded = text["guards"] is not None
    trace = Trace(expressions, examples, folds=guarded)
    if guarded:
        _restore(trace, text["guards"])
    reader.sizes = [trace.size(_sum(data, expressions)) for data in checked(text["sizes"], list)]
    with empty_dimensions():
        graph = graph_of(form_of(StoredGraph).read(reader, text["graph"]))
    donated = {checked(k, str): checked(v, str) for k, v in text["donated"].items()}
    if not donated.keys() <= graph.inputs.keys() or not {*donated.values()} <= graph.outputs.keys():
        raise ValueError(f"the graph donates {donated}")
    shaped = shaped_graph(replace(graph, donated=donated))
    if not isinstance(shaped, ShapedGraph):
        raise ValueError("the graph has no named dimension")
    modules = reader.modules(text["kernels"], text["modules"])
    return LoadedGraph(shaped, modules, checked(text["in_place"], bool))


def _expressions(text: dict[str, Any]) -> Expressions:
    expressions = Expressions()
    for name, low, high in checked(text["dimensions"], list):
        dimension = MLDynamicDimension(name, checked(high, int), checked(low, int))
        expressions.bounds[name] = dimension.min_size, dimension.max_size
    for number, (operation, a, b) in enumerate(checked(text["atoms"], list)):
        if operation == "dimension":
            if a not in expressions.bounds or b is not None:
                raise ValueError(f"there is no dimension {a!r}")
            made = expressions.atom(operation, a)
        elif operation in OPERATIONS:
            made = expressions.atom(operation, _sum(a, expressions), _sum(b, expressions))
        else:
            raise ValueError(f"there is no operation {operation!r}")
        if made != number:
            raise ValueError(f"{operation} of {a!r} and {b!r} is there twice")
    return expressions


def _sum(data: Any, expressions: Expressions) -> Any:
    """An operand of an expression: a number, or a sum of products of known atoms."""
    if type(data) in (int, float):
        if not math.isfinite(data):
            raise ValueError(f"{data} is no size")
        return data
    terms = tuple((tuple(checked(p, list)), checked(c, int)) for p, c in checked(data, list))
    numbers = [number for product, _ in terms for number in product]
    if not all(type(n) is int and 0 <= n < len(expressions.atoms) for n in numbers):
        raise ValueError(f"{data!r} has other atoms than {len(expressions.atoms)}")
    return terms


def _restore(trace: Trace, data: Any) -> None:
    """Put what was decided back."""
    intervals, truths = data
    guards, expressions = trace.decided, trace.expressions
    for terms, low, high in intervals:
        pair = (-math.inf if low is None else checked(low, int),
                math.inf if high is None else checked(high, int))
        guards.intervals[_sum(terms, expressions)] = pair
    for operation, a, b, truth in truths:
        if operation not in OPERATIONS:
            raise ValueError(f"there is no comparison {operation!r}")
        key = operation, _sum(a, expressions), _sum(b, expressions)
        guards.truths[key] = checked(truth, bool)

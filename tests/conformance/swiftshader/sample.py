"""The sample that runs on a second driver: it has every data type of every operator.

Vectors of the web-platform-tests come first. For some combinations of operator and data type that
the draft allows the suite has no vector; those are random examples, compared with the NumPy
reference.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

import webnn_vk
from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import Example
from tests.conformance.wpt import conformance
from tests.support.random_examples import without_local_constants
from webnn_vk.compiler.ir import Node
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.record import Like

#: (operand or output, data type) of one use of an operator, and the operator.
Types = frozenset[tuple[str, str]]
Use = tuple[str, Types]
#: (operator, operand or output, data type)
Triple = tuple[str, str, str]

# What an operator costs besides its elements, in elements: compiling it outweighs small tensors.
_OPERATOR_COST = 1000
# Number of draws of an example; the one closest to this number of elements is taken: enough for
# vectors, their remainder and several workgroups.
_DRAWS, _ELEMENTS = 8, 500


@dataclass(frozen=True)
class Vector:
    """A case of the suite: file, its number there, the case, its cost, and its coverage."""

    file: str
    number: int
    case: dict[str, Any]
    cost: int
    uses: frozenset[Use]


def allowed(only: str | None = None) -> set[Triple]:
    """Every data type of every operand and output of every operator, or of one."""
    return {
        (name, row, data_type)
        for name, operator in OPERATORS.items()
        if only in (None, name)
        for row in operator.limits
        for data_type in operator.limit(row).types
    }


def triples(uses: Iterable[Use]) -> set[Triple]:
    return {(operator, row, data_type) for operator, types in uses for row, data_type in types}


# -- vectors
def vectors(only: str | None = None) -> list[Vector]:
    """Every case of the suite with data types of the draft, in the suite's order; if an operator is
    given, those that use it."""
    found = []
    numbers: dict[str, int] = {}
    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        for file, case in conformance.cases():
            number = numbers[file] = numbers.get(file, -1) + 1
            if case.get("nonSpecDataType"):
                continue
            uses = _uses(context, case)
            if only is None or only in {operator for operator, _ in uses}:
                found.append(Vector(file, number, case, _cost(case["graph"]), uses))
    return found


def _cost(graph: dict[str, Any]) -> int:
    resources = (*graph["inputs"].values(), *graph["expectedOutputs"].values())
    elements = sum(int(np.prod(r["descriptor"]["shape"], dtype=object)) for r in resources)
    return elements + _OPERATOR_COST * len(graph["operators"])


def _uses(context: Any, case: dict[str, Any]) -> frozenset[Use]:
    builder = webnn_vk.MLGraphBuilder(context)
    operands, _ = conformance.build(builder, case["graph"], True, _zeros)
    outputs = {name: operands[name] for name in case["graph"]["expectedOutputs"]}
    return frozenset(_use(node) for node in builder._graph(outputs).nodes)


def _zeros(resource: dict[str, Any]) -> np.ndarray:
    """Stands in for a case's data, which doesn't affect the types."""
    descriptor = resource["descriptor"]
    return np.broadcast_to(np.dtype(descriptor["dataType"]).type(0), descriptor["shape"])


def _use(node: Node) -> Use:
    found = {(name.partition("[")[0], value.data_type) for name, value in node.operands.items()}
    operands = {p.name for p in node.operator.operands}
    rows = [row for row in node.operator.limits if row not in operands]
    found |= {(row, r.data_type) for row, r in zip(rows, node.results, strict=False)}
    return node.operator.name, frozenset(found)


Item = TypeVar("Item")


def cover(items: Sequence[tuple[Item, int, frozenset[Any]]]) -> list[Item]:
    """From (item, cost, coverage): items that together cover everything that any item covers, the
    cheapest first; ties by their order. None of them could be left out."""
    ordered = sorted(items, key=lambda entry: entry[1])
    chosen: list[tuple[Item, frozenset[Any]]] = []
    covered: dict[Any, int] = {}
    for item, _, has in ordered:
        if has - covered.keys():
            chosen.append((item, has))
            for one in has:
                covered[one] = covered.get(one, 0) + 1
    kept = []
    # The most expensive first: later ones may have made an earlier one redundant, not the other
    # way.
    for item, has in reversed(chosen):
        if all(covered[one] > 1 for one in has):
            for one in has:
                covered[one] -= 1
        else:
            kept.append(item)
    return kept[::-1]


def covering_vectors(every: Sequence[Vector]) -> list[Vector]:
    """Vectors with every combination of data types that the suite uses an operator with."""
    return cover([(vector, vector.cost, vector.uses) for vector in every])


def random_vectors(every: Sequence[Vector], count: int, seed: str) -> list[Vector]:
    """Some more vectors, at random, without the few with millions of elements."""
    small = [vector for vector in every if vector.cost < 100_000]
    return random.Random(seed).sample(small, min(count, len(small)))


# -- examples
def covering_examples(missing: set[Triple]) -> list[Example]:
    """Random uses of operators, always the same, that together have these data types."""
    found = []
    for operator in sorted({triple[0] for triple in missing}):
        wanted = {(row, data_type) for name, row, data_type in missing if name == operator}
        candidates: list[Example] = []
        for types in _assignments(operator, wanted):
            candidates += _draw(operator, types)
        found += cover(
            [(e, abs(_size(e) - _ELEMENTS), e.types() & wanted) for e in candidates]
        )
    return found


def _assignments(operator: str, wanted: set[tuple[str, str]]) -> list[dict[str, str]]:
    """Types for the rows of the limits; every wanted one occurs, for several rows at a time."""
    record = OPERATORS[operator]
    by_row: dict[str, list[str]] = {}
    for row, data_type in sorted(wanted):
        while isinstance(record.limits[row], Like):
            row = record.limits[row].operand
        if data_type not in by_row.setdefault(row, []):
            by_row[row].append(data_type)
    count = max(map(len, by_row.values()))
    return [
        {row: types[i % len(types)] for row, types in by_row.items()} for i in range(count)
    ]


def _draw(operator: str, types: dict[str, str]) -> list[Example]:
    found: list[Example] = []
    without_local_constants()

    @seed(0)
    @settings(
        max_examples=_DRAWS, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(examples(operator, types=types))
    def collect(example: Example) -> None:
        found.append(example)

    collect()
    return found


def _size(example: Example) -> int:
    return sum(o.size for o in example.outputs()) + sum(
        array.size
        for value in example.operands.values()
        for array in (value if isinstance(value, list) else [value])
    )

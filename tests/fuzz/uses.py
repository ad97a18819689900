"""Valid uses of every operator, drawn from the records as in the differential tests."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import Example
from tests.conformance.differential.values import SMALL
from tests.support.random_examples import without_local_constants
from webnn_vk.compiler.ops import OPERATORS

#: Maximum number of elements that a use reads and writes: all of them are built and run.
_MOST = 1 << 12


def valid_uses(number: int, each: int) -> dict[str, list[Example]]:
    """About ``each`` small uses by operator; the same ones for the same ``number``."""
    found = {name: _drawn(name, number, each) for name in OPERATORS}
    return {name: uses for name, uses in found.items() if uses}


def _drawn(name: str, number: int, each: int) -> list[Example]:
    uses: list[Example] = []
    without_local_constants()

    @settings(max_examples=each, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @seed(number)
    @given(examples(name, flavours=(SMALL,)))
    def collect(example: Example) -> None:
        size = sum(math.prod(d.shape) for d in example.outputs())
        for arrays in example.operands.values():
            size += sum(a.size for a in (arrays if isinstance(arrays, list) else [arrays]))
        if size <= _MOST:
            uses.append(example)

    collect()
    return uses

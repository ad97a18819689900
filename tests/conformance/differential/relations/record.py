"""Registry of relations; see the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.differential.drafting import Draft
from tests.conformance.differential.example import Example

#: Operator → how an example is drawn.
RELATIONS: dict[str, Callable[[Draft], Example]] = {}


def relation(*operators: str) -> Callable[[Any], Any]:
    """Registers the function that draws the examples of these operators."""

    def record(function: Callable[[Draft], Example]) -> Callable[[Draft], Example]:
        RELATIONS.update(dict.fromkeys(operators, function))
        return function

    return record

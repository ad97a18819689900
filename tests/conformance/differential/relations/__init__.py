"""Operators whose validity relates shapes and arguments: operator → how an example is drawn.

Everything that the record itself says (types, ranks, annotations) comes from ``Draft``.
"""

from tests.conformance.differential.relations import elements, movement, products, recurrent
from tests.conformance.differential.relations.record import RELATIONS

__all__ = ["RELATIONS", "elements", "movement", "products", "recurrent"]

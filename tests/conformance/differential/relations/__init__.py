"""Operators whose validity relates shapes and arguments: operator → how an example is drawn.

``Draft`` draws everything that follows from the record alone (types, ranks, annotations).
"""

from tests.conformance.differential.relations import elements, movement, products, recurrent
from tests.conformance.differential.relations.record import RELATIONS

__all__ = ["RELATIONS", "elements", "movement", "products", "recurrent"]

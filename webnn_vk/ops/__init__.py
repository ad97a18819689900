"""One record per operator: signature, limits, validation, reference and lowering.

Importing this package loads every family; ``OPERATORS`` maps the builder's method names to them.
"""

import importlib
import pkgutil

from .record import OPERATORS, Operator

__all__ = ["OPERATORS", "Operator"]

# Families register their operators when imported; the folder is the list.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

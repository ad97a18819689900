"""One record per operator: signature, limits, validation, reference and lowering.

Importing this package loads every family; ``OPERATORS`` maps the builder's method names to the
specification's records, ``COMPILER_OPERATORS`` has the compiler's own, ``ALL_OPERATORS`` both.
Imports `types/` and `support/`.
"""

import importlib
import pkgutil

from .record import ALL_OPERATORS, COMPILER_OPERATORS, OPERATORS, Operator

# Families register their operators when imported; the folder is the list.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

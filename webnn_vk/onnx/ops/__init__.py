"""The operators that the importer maps, by family; importing this fills the table of records."""

import importlib
import pkgutil

# Families register their operators when imported; the folder is the list.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

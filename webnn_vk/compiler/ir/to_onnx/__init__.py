"""One rule per operator that writes it in ONNX, by families: see ``writer.rule``."""

import importlib
import pkgutil

from .writer import RULES, Fragment, write

# Rules are registered when imported; the folder is the list.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

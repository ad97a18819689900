"""Names of a package that are loaded on first use (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package with these globals. ``modules``: name → the module of the
    package that defines it, or is it if both have one name."""
    own = package["__name__"]

    def __getattr__(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        found = importlib.import_module(f"{own}.{module}")
        value = package[name] = found if module == name else getattr(found, name)
        return value

    return __getattr__

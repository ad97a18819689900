"""The IDL's spelling of names: ``conv_transpose2d`` is ``convTranspose2d``."""

from __future__ import annotations

import re

_EXCEPTIONS = {"is_nan": "isNaN", "gather_nd": "gatherND", "scatter_nd": "scatterND"}


def camel_case(name: str) -> str:
    """A Python name of the API as the IDL spells it."""
    return _EXCEPTIONS.get(name) or re.sub("_([a-z])", lambda found: found[1].upper(), name)

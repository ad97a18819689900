"""Names of the Working Group's drafts that a context implements on request."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

#: Names for ``create_context(experimental=[…])``; docs/experimental.md describes them.
EXPERIMENTAL = ("dynamic-shapes", "subgraph", "low-precision", "compute-policy")


def experimental_names(given: Any, what: str = "experimental") -> frozenset[str]:
    """The names ``given`` as a set. TypeError for anything but known names in a sequence."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{what}: a sequence of names is expected, not {given!r}")
    try:
        names = list(given)
    except Exception:
        raise TypeError(
            f"{what}: a sequence of names is expected, not {type(given).__name__}"
        ) from None
    for name in names:
        if not isinstance(name, str) or name not in EXPERIMENTAL:
            shown = repr(name) if isinstance(name, str) else type(name).__name__
            raise TypeError(f"{what}: {shown} is not one of {', '.join(EXPERIMENTAL)}")
    return frozenset(names)


def require_experimental(names: Collection[str], name: str, what: str) -> None:
    """TypeError that names the flag unless ``name`` is among a context's ``names``. ``what``
    describes the use."""
    if name not in names:
        raise TypeError(f"{what}: experimental; ml.create_context(experimental=[{name!r}]) has it")

"""Labels: the names that callers give to GPU objects, for messages."""

from __future__ import annotations

from webnn_vk.support.errors import sanitize


def named(what: str, label: str) -> str:
    """A method's name with its ``[label]`` for messages."""
    if not isinstance(label, str):
        raise TypeError(f"{what}: the label has to be a str, not {type(label).__name__}")
    return f"{what} [{sanitize(label)}]" if label else what


def shown(label: str) -> str:
    """A label in a repr; empty for no label."""
    return f" {sanitize(label)!r}" if label else ""

"""Warnings that appear once: a situation that changes where work runs, or how fast."""

from __future__ import annotations

import warnings
from contextvars import ContextVar

_said: set[str] = set()
#: File and line of the user's call that the thread works for, which warnings name.
call_site: ContextVar[tuple[str, int]] = ContextVar("call_site", default=("webnn_vk", 0))


def say_once(message: str) -> None:
    """One clear line for each situation."""
    if message not in _said:
        _said.add(message)
        warnings.warn_explicit(f"webnn_vk: {message}", RuntimeWarning, *call_site.get())

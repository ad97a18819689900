"""What the user is told once: a situation that changes where work runs, or how fast."""

from __future__ import annotations

import warnings

_said: set[str] = set()


def say_once(message: str) -> None:
    """One clear line for each situation."""
    if message not in _said:
        _said.add(message)
        warnings.warn(f"webnn_vk: {message}", RuntimeWarning, stacklevel=3)

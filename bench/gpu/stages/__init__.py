"""The stages of a run: a module each, whose ``run(session)`` adds rows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..session import Session

#: Stage -> planned seconds, the most important first. ``--seconds`` scales them; a stage also gets
#: the seconds that earlier ones left.
STAGES = {"device": 36, "right": 42, "products": 48, "host": 12, "decoder": 62, "kernels": 36,
          "models": 46, "tuner": 16, "cold": 12, "real": 32}
#: Stages that need an option of their own; their seconds come on top.
PEERS = {"ort": 50, "llama": 75}


def stage(name: str) -> Callable[[Session], None]:
    """What a stage runs."""
    run: Callable[[Session], None] = import_module(f"{__name__}.{name}").run
    return run

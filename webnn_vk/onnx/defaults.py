"""The defaults of a session: its context, and what the names of providers mean for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from webnn_vk.api.context import MLContext
from webnn_vk.api.navigator import ml
from webnn_vk.support import environment
from webnn_vk.support.errors import sanitize
from webnn_vk.support.settings import Settings

CPU = "CPUExecutionProvider"


def provider_names(providers: Sequence[Any] | None) -> list[str]:
    """The names of ``providers``, which are names or pairs of name and options. ValueError for
    others."""
    if isinstance(providers, str):
        raise ValueError(f"providers: a list of names is expected: [{providers!r}]")
    names = []
    for given in providers or ():
        name = given[0] if isinstance(given, tuple) and len(given) == 2 else given
        if not isinstance(name, str):
            raise ValueError(f"providers: names, or pairs of name and options, not {given!r}")
        names.append(name)
    return names


def default_context(providers: Sequence[str]) -> MLContext:
    """A context: on the device that the environment names or ``ml.create_context()`` takes, on the
    CPU device where that is the only provider."""
    if {*providers} == {CPU} and environment.text("WEBNN_VK_DEVICE") is None:
        settings = replace(Settings.from_environment(), device="cpu")
        return ml.create_context(settings=settings).result()
    return ml.create_context().result()


def title_of(source: Any) -> str:
    """The name of a model: its file's name."""
    if isinstance(source, (str, os.PathLike)):
        return repr(sanitize(Path(source).name))
    return "a model"

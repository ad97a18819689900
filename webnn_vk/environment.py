"""The environment variables, read in one place. Imports nothing of the package: everyone may ask.

What decides how contexts are made is in ``settings.Settings``, whose `from_environment` asks here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Every variable and what it says.
VARIABLES = {
    "WEBNN_VK_DEVICE": "the device of contexts: index, part of a name, cpu or vulkan",
    "WEBNN_VK_VALIDATE": "1: with the Khronos validation layer",
    "WEBNN_VK_GLSLANG": "the GLSL compiler: auto, process or none",
    "WEBNN_VK_MASK": "device features to pretend absent, separated by commas",
    "WEBNN_VK_FORCE_CPU": "operators placed on the CPU, separated by commas",
    "WEBNN_VK_CACHE": "the folder of the shader cache, or off",
    "WEBNN_VK_SKIP_PASSES": "optimisations left out, separated by commas",
    "WEBNN_VK_DUMP": "a folder for the texts of graphs after every pass",
    "WEBNN_VK_CPU_ENGINE": "who computes on the CPU: auto, numpy or onnxruntime",
    "WEBNN_VK_VERIFY_PASSES": "1: graphs are verified after every pass",
    "WEBNN_VK_PACK": "the file with precompiled shaders",
    "WEBNN_VK_DUMP_SPIRV": "a folder for every SPIR-V module that becomes a pipeline",
}


_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def text(name: str, environment: Mapping[str, str] | None = None) -> str | None:
    """A variable's value; None where it is not set or empty. ``environment``: by default the
    process's. KeyError for a variable that is not in `VARIABLES`."""
    VARIABLES[name]
    return (os.environ if environment is None else environment).get(name) or None


def given() -> dict[str, str]:
    """The variables that are set, with their values."""
    return {name: value for name in VARIABLES if (value := text(name)) is not None}


def flag(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a variable says yes; ValueError for what is neither yes nor no."""
    word = (text(name, environment) or "").strip().lower()
    if word not in (*_ON, *_OFF):
        known = ", ".join((*_ON, *_OFF[:-1]))
        raise ValueError(f"{name}: {text(name, environment)!r} is not one of {known}")
    return word in _ON


def words(name: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The words of a variable, which commas separate; spaces mean nothing."""
    given = (text(name, environment) or "").replace(" ", "")
    return tuple(word for word in given.split(",") if word)

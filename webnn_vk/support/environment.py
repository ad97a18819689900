"""The environment variables, read in one place. Imports nothing of the package: everyone may ask.

What decides how contexts are made is in ``settings.Settings``, whose `from_environment` asks here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import forks

#: Every variable and what it says.
VARIABLES = {
    "WEBNN_VK_DEVICE": "the device of contexts: index, part of a name, uuid:…, pci:…, vulkan, cpu",
    "WEBNN_VK_DRIVER": "what opens the device: vulkan, kompute or null",
    "WEBNN_VK_NULL_DEVICES": "the number of GPUs that the null driver pretends to have",
    "WEBNN_VK_VALIDATE": "1: with the Khronos validation layer",
    "WEBNN_VK_GLSLANG": "the GLSL compiler: auto, process or none",
    "WEBNN_VK_MASK": "device features to pretend absent, separated by commas",
    "WEBNN_VK_FORCE_CPU": "operators placed on the CPU, separated by commas",
    "WEBNN_VK_CACHE": "the folder of the cache (shaders, checked drivers), or off",
    "WEBNN_VK_SKIP_PASSES": "optimisations left out, separated by commas",
    "WEBNN_VK_DUMP": "a folder for the texts of graphs after every pass",
    "WEBNN_VK_CPU_ENGINE": "the engine of the CPU: auto, numpy or onnxruntime",
    "WEBNN_VK_TUNE": "1: measure kernels when graphs are built; 0: use nothing that was measured",
    "WEBNN_VK_EXPERIMENTAL": "drafts of the Working Group to implement, separated by commas",
    "WEBNN_VK_VERIFY_PASSES": "1: graphs are verified after every pass, and GLSL must compile",
    "WEBNN_VK_PACK": "the file with precompiled shaders",
    "WEBNN_VK_CHIPS": "the folder with the drivers of chips that are not in the machine",
    "WEBNN_VK_DUMP_SPIRV": "a folder for every SPIR-V module that becomes a pipeline",
}


_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
#: Values that stand for no folder.
_NO_FOLDER = ("off", "none", "no", "false", "0")
#: Variables by which the Vulkan loader and drivers decide which drivers there are.
_OF_DRIVERS = (
    "VK_", "MESA_VK_", "MESA_LOADER", "RADV_FORCE", "NVIDIA_", "CUDA_VISIBLE", "__NV_", "DRI_PRIME",
    "XDG_DATA", "XDG_CONFIG",
)
#: The GPUs and the processors of a worker, and the cluster of a program.
_OF_ENGINES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES",
               "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "RAY_ADDRESS")


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


def choice(name: str, environment: Mapping[str, str] | None = None) -> bool | None:
    """As ``flag``, None for a variable that is not set."""
    return None if text(name, environment) is None else flag(name, environment)


def words(name: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The words of a variable, which commas separate; spaces mean nothing."""
    given = (text(name, environment) or "").replace(" ", "")
    return tuple(word for word in given.split(",") if word)


def given_folder(value: str | os.PathLike[str]) -> Path | None:
    """A folder as users write it, with ``~`` for their own; None for off, none, no, false and 0 in
    any case (``./off`` is a folder). ValueError for a ``~`` that stands for nothing."""
    if isinstance(value, str) and value.strip().lower() in _NO_FOLDER:
        return None
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{str(value)!r} is not a folder: {error}") from None


def cache_folder() -> Path | None:
    """``WEBNN_VK_CACHE``, or the user's folder for caches; None for off, and for a user without a
    home."""
    value = text("WEBNN_VK_CACHE")
    return given_folder(value) if value else user_cache_folder()


def user_cache_folder() -> Path | None:
    """The user's folder for caches; None for a user without a home."""
    # It imports a part for this system when it is asked.
    with forks.undisturbed():
        import platformdirs

        try:
            folder = Path(platformdirs.user_cache_dir("webnn_vk", appauthor=False))
        except RuntimeError:
            return None  # neither HOME nor an entry for the user in the system's list
    # Older ones leave "~" as it is.
    return folder if folder.is_absolute() else None


def of_drivers() -> dict[str, str]:
    """The variables that decide which Vulkan drivers are found and how they come up."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OF_DRIVERS)}


def of_engines() -> dict[str, str]:
    """The variables by which Ray, Spark and others say what a process may use."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OF_ENGINES)}


def set_default(name: str, value: str) -> None:
    """Set a variable of a library that is loaded later, unless it is set."""
    os.environ.setdefault(name, value)


def changed(values: Mapping[str, str]) -> dict[str, str]:
    """The process's variables with others in places, for a child process."""
    return {**os.environ, **values}


@contextmanager
def set_for_now(values: Mapping[str, str]) -> Iterator[None]:
    """Variables of the process that libraries read in the meantime."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

"""Settings: the environment variables and their Python counterparts in one record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from . import environment
from .dataclass import dataclass
from .experimental import experimental_names

MLDriver = Literal["vulkan", "kompute", "null"]
DRIVERS: tuple[str, ...] = get_args(MLDriver)
#: The values of the settings that are one of a few words.
_CHOICES = {
    "glslang": ("auto", "process", "none"),
    "cpu_engine": ("auto", "numpy", "onnxruntime"),
    "driver": DRIVERS,
}


@dataclass(frozen=True)
class Settings:
    """How contexts are made and graphs compiled.

    ``device``: index, part of a name, "uuid:…", "pci:…" (a PCI address), "vulkan" or "cpu"
    (``WEBNN_VK_DEVICE``). ``driver``: what opens the
    device: "vulkan"; "kompute", Kompute's Python module kp; "null", which computes nothing and
    needs no device (``WEBNN_VK_DRIVER``). ``validate``: load the
    Khronos validation layer (``WEBNN_VK_VALIDATE``). ``glslang``: "auto", "process" or "none"
    (``WEBNN_VK_GLSLANG``). ``mask``: device features to pretend absent (``WEBNN_VK_MASK``).
    ``force_cpu``: operators placed on the CPU (``WEBNN_VK_FORCE_CPU``). ``cache``: folder of the
    caches of shaders, saved graphs and checked drivers, or "off"; ``~`` is the user's own
    (``WEBNN_VK_CACHE``). ``skip_passes``: names of optimisations left out, "fold" or "fuse" for
    example; one that is unknown or can't be left out is a ValueError when the context is created
    (``WEBNN_VK_SKIP_PASSES``). ``dump``: a folder that gets, for each graph built, a sub-folder
    with the graph's text after every pass (``WEBNN_VK_DUMP``). ``cpu_engine``: the engine for what
    the CPU has to: "onnxruntime", "numpy", or "auto": ONNX Runtime where the extra ``cpu`` is
    installed (``WEBNN_VK_CPU_ENGINE``). ``tune``: True measures the kernels of every graph built
    and keeps what is fastest in the cache folder, None uses what is kept there, False ignores it
    (``WEBNN_VK_TUNE``). ``experimental``: names of drafts of the Working Group to implement, see
    docs/experimental.md (``WEBNN_VK_EXPERIMENTAL``).

    Given to ``ml.create_context`` or ``adapter.request_device`` they replace the environment's, all
    of them. TypeError and ValueError for what can't be; names of operators, features and passes
    that don't exist are refused when the context is created.
    """

    device: str | int | None = None
    validate: bool = False
    glslang: str = "auto"
    mask: Sequence[str] = ()
    force_cpu: Sequence[str] = ()
    cache: Path | str | None = None
    skip_passes: Sequence[str] = ()
    dump: Path | str | None = None
    cpu_engine: str = "auto"
    driver: str = "vulkan"
    tune: bool | None = None
    experimental: Sequence[str] = ()
    # Whether all of it comes from the environment: messages name what the user wrote.
    _environment: bool = field(default=False, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.device, int) and not isinstance(self.device, bool):
            object.__setattr__(self, "device", str(self.device))
        if not isinstance(self.device, (str, type(None))):
            raise TypeError(f"device: an index or a name is expected, not {self.device!r}")
        if not isinstance(self.validate, (bool, int)):
            raise TypeError(f"validate: a bool is expected, not {self.validate!r}")
        object.__setattr__(self, "validate", bool(self.validate))
        if self.tune not in (None, False, True) or isinstance(self.tune, float):
            raise TypeError(f"tune: True, False or None is expected, not {self.tune!r}")
        object.__setattr__(self, "tune", None if self.tune is None else bool(self.tune))
        object.__setattr__(
            self, "experimental", tuple(sorted(experimental_names(self.experimental)))
        )
        for name in ("mask", "force_cpu", "skip_passes"):
            names = getattr(self, name)
            if isinstance(names, str):
                raise TypeError(f"{name}: a sequence of names is expected, not the str {names!r}")
            object.__setattr__(self, name, tuple(names))
        for name in ("cache", "dump"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, (str, os.PathLike)):
                raise TypeError(f"{name}: a folder is expected, not {value!r}")
            try:
                folder = environment.given_folder(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            nothing = "off" if name == "cache" else None
            object.__setattr__(self, name, nothing if folder is None else folder)
        for name, words in _CHOICES.items():
            if getattr(self, name) not in words:
                raise ValueError(
                    f"{name}: {getattr(self, name)!r} is not one of {', '.join(words)}"
                )

    def called(self, name: str) -> str:
        """How the user calls a setting, for messages. At once; raises nothing."""
        return f"WEBNN_VK_{name.upper()}" if self._environment else name

    @property
    def cache_folder(self) -> Path | None:
        """The folder for what is kept between processes, None for none."""
        if self.cache is None:
            return environment.cache_folder()
        return None if self.cache == "off" else Path(self.cache)

    @property
    def asked_device(self) -> str:
        """How the device was asked for, for messages."""
        if self._environment:
            return f"WEBNN_VK_DEVICE={self.device!r}"
        number = isinstance(self.device, str) and self.device.isdecimal()
        return f"Settings(device={self.device if number else repr(self.device)})"

    @classmethod
    def given(
        cls,
        settings: Settings | None,
        *,
        driver: str | None = None,
        experimental: Sequence[str] | None = None,
    ) -> Settings:
        """``settings``, or the environment's for None, with another ``driver`` and other
        ``experimental`` names if they are given; at once. TypeError for anything else, ValueError
        for nonsense in a variable."""
        if settings is not None and not isinstance(settings, Settings):
            raise TypeError(f"settings: Settings are expected, not {type(settings).__name__}")
        chosen = settings or cls.from_environment()
        changes: dict[str, Any] = {}
        if driver is not None and driver != chosen.driver:
            changes["driver"] = driver
        if experimental is not None:
            changes["experimental"] = experimental
        if not changes:
            return chosen
        changed = replace(chosen, **changes)
        object.__setattr__(changed, "_environment", chosen._environment)
        return changed

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] | None = None) -> Settings:
        """The settings of the ``WEBNN_VK_…`` variables (``variables``: in place of the
        process's); at once. ValueError for an invalid value."""
        def text(name: str) -> str | None:
            return environment.text(f"WEBNN_VK_{name.upper()}", variables)

        given: dict[str, Any] = {name: text(name) for name in ("device", "cache", "dump")}
        given |= {name: word for name in _CHOICES if (word := text(name)) is not None}
        for name in ("mask", "force_cpu", "skip_passes", "experimental"):
            given[name] = environment.words(f"WEBNN_VK_{name.upper()}", variables)
        given["validate"] = environment.flag("WEBNN_VK_VALIDATE", variables)
        given["tune"] = environment.choice("WEBNN_VK_TUNE", variables)
        try:
            settings = cls(**given)
        except (ValueError, TypeError) as error:
            # Name the variable in place of the setting.
            name, _, problem = str(error).partition(": ")
            raise type(error)(f"WEBNN_VK_{name.upper()}: {problem}") from None
        object.__setattr__(settings, "_environment", True)
        return settings


def verify_passes(variables: Mapping[str, str] | None = None) -> bool:
    """Whether graphs are verified after every pass (``WEBNN_VK_VERIFY_PASSES``), and a build ends
    where our GLSL doesn't compile: for tests, so it is no setting of one context."""
    return environment.flag("WEBNN_VK_VERIFY_PASSES", variables)

"""The module `kp`, and workarounds for its calls."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from webnn_vk.driver.errors import DriverError, DriverUnavailable

INSTALL = "scripts/install-kompute builds and installs it (docs/drivers.md)"


class KomputeError(DriverError):
    """A call of Kompute's failed."""


def load() -> Any:
    """The module `kp`; DriverUnavailable, with what to do, where it isn't installed."""
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        import kp
    except ImportError as error:
        raise DriverUnavailable(f"Kompute's Python module kp can't be loaded ({error}); "
                                f"{INSTALL}") from error
    # It calls logging.basicConfig(), which only applications should do.
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
    return kp


def open_manager(kp: Any, name: str, index: int) -> Any:
    """Kompute's manager for the Vulkan device of that name, which is expected at `index`.
    DriverUnavailable when Kompute doesn't list it."""
    try:
        manager = kp.Manager(index)
        if manager.get_device_properties()["device_name"] == name:
            return manager
        names = [device["device_name"] for device in manager.list_devices()]
        manager.destroy()
    except RuntimeError as error:
        raise DriverUnavailable(f"Kompute can't open {name}: {error}") from error
    if names.count(name) != 1:
        raise DriverUnavailable(f"Kompute finds {', '.join(names)}; {name} is not one of them")
    return kp.Manager(names.index(name))


def words_of(tensor: Any) -> np.ndarray:
    """A tensor's memory on the host as uint32, in place.

    Built with pybind11 before 2.12, kp makes arrays with strides of 0 under NumPy 2.
    """
    return np.lib.stride_tricks.as_strided(tensor.data(), strides=(4,))

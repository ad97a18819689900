"""A driver in front of another: the base of drivers that inject faults or count."""

from __future__ import annotations

from typing import Any

from webnn_vk.driver import Driver


def has_interface(driver: Any) -> bool:
    """Whether it has every member of the driver interface. From Python 3.12 on, `isinstance` with a
    protocol doesn't see what ``__getattr__`` forwards."""
    members = {name for name in vars(Driver) if not name.startswith("_")}
    return all(hasattr(driver, name) for name in members | Driver.__annotations__.keys())


class DriverProxy:
    """Forwards everything to another driver.

    A method of a subclass or an instance replaces a facet's method of the same name. Direct submits
    would pass it by, so it has none.
    """

    direct = None

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

    @property
    def sharing(self) -> Any:
        """The other driver's facet, with the methods that replace its own."""
        return self.driver.sharing and _FacetProxy(self, self.driver.sharing)


class _FacetProxy:
    def __init__(self, proxy: DriverProxy, facet: Any) -> None:
        self._proxy, self._facet = proxy, facet

    def __getattr__(self, name: str) -> Any:
        replaced = name in vars(self._proxy) or hasattr(type(self._proxy), name)
        return getattr(self._proxy if replaced else self._facet, name)

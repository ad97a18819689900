"""The devices of this machine as users see them (extension)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any
from uuid import UUID

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.mixins import html_table

from .device_profile import DeviceProfile


@dataclass(frozen=True, repr=False)
class DeviceInfo:
    """One device. ``type`` is "discrete", "integrated", "virtual", "cpu" (a software Vulkan
    device), "other", or "numpy" for the CPU device; ``unusable`` says why it can't be used.
    ``uuid`` and ``pci`` (the PCI address) tell devices of one name apart, also in
    ``Settings(device="uuid:…")`` and ``"pci:…"``; "" where there is none."""

    name: str
    type: str
    driver: str = ""
    api_version: str = ""
    index: int | None = None
    features: tuple[str, ...] = ()
    limits: dict[str, Any] = field(default_factory=dict)
    unusable: str | None = None
    uuid: str = ""
    pci: str = ""
    # A function if the answer has to query Vulkan's drivers, which other contexts don't load.
    chosen: bool | Callable[[], bool] = field(default=False, compare=False)

    @property
    def default(self) -> bool:
        """Whether ``ml.create_context()`` takes it as things are: with the environment's settings,
        and no options. May wait for the drivers."""
        return self.chosen if isinstance(self.chosen, bool) else self.chosen()

    @property
    def is_vulkan(self) -> bool:
        """Whether it is a Vulkan device, software ones included, or else the CPU device."""
        return self.type != "numpy"

    @classmethod
    def of(
        cls,
        profile: DeviceProfile,
        index: int | None = None,
        unusable: str | None = None,
        chosen: bool | Callable[[], bool] = False,
    ) -> DeviceInfo:
        """The device of a profile; at once, raises nothing."""
        limits = {
            name: getattr(profile, name)
            for name in profile.__dataclass_fields__
            if name.startswith(("max_", "min_", "subgroup_size", "memory_heaps"))
            and getattr(profile, name) is not None
        }
        return cls(
            profile.name,
            profile.device_type,
            f"{profile.driver_name} {profile.driver_version}".strip(),
            ".".join(map(str, profile.api_version)) if any(profile.api_version) else "",
            index,
            tuple(sorted(profile.features)),
            limits,
            unusable,
            str(UUID(profile.uuid)) if profile.uuid else "",
            profile.pci,
            chosen,
        )

    def __repr__(self) -> str:
        return f"<DeviceInfo {self}{', the default' * self.default}>"

    def _repr_html_(self) -> str:
        rows = [
            ("type", self.type), ("driver", self.driver), ("Vulkan", self.api_version),
            ("index", self.index), ("UUID", self.uuid), ("PCI address", self.pci),
            ("unusable", self.unusable),
            ("default", "yes" if self.default else None),
            ("features", ", ".join(self.features)), *self.limits.items(),
        ]
        return html_table([row for row in rows if row[1] not in (None, "")], caption=self.name)

    def __str__(self) -> str:
        # The CPU device's name says what computes there.
        parts = [self.type] if self.is_vulkan else []
        if self.api_version:
            parts.append(f"Vulkan {self.api_version}")
        if self.driver:
            parts.append(self.driver)
        text = f"{self.name} ({', '.join(parts)})" if parts else self.name
        return f"{text} — unusable: {self.unusable}" if self.unusable else text

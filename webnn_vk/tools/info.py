"""``webnn-vk info``: devices with their features, limits and quirks, and the caches."""

from __future__ import annotations

from typing import Any

import webnn_vk
from webnn_vk.codegen.disk_cache import cache_state
from webnn_vk.driver import DriverError
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.runtime.device_selection import find_devices, known_quirks

from .caches import saved_graphs
from .devices import described, open_context
from .output import emit, facts, size, table


def info(device: str | None, as_json: bool) -> None:
    """Print the features, limits and quirks of the device (by default of each device), and the
    caches. ``ToolError`` for an unknown device."""
    found = [_described(one) for one in _chosen(device)]
    cache = cache_state()
    graphs = saved_graphs()
    if as_json:
        emit({"devices": found, "cache": cache, "saved_graphs": graphs})
        return
    for one in found:
        _print(one)
    facts([
        ("Cache", "off" if cache["folder"] is None else
         f"{cache['folder']}: {cache['entries']} shaders, {size(cache['bytes'])}; "
         f"{len(graphs)} saved graphs, {size(sum(graphs.values()))}"),
    ])


def _chosen(device: str | None) -> list[DeviceInfo]:
    infos = webnn_vk.devices()
    if not device:
        return infos
    with open_context(device) as context:
        chosen = context.device_info
    return [i for i in infos if (i.index, i.type) == (chosen.index, chosen.type)] or [chosen]


def _described(one: DeviceInfo) -> dict[str, Any]:
    quirks: dict[str, str] = {}
    if one.index is not None:
        try:
            profiles = {device.index: device.profile for device in find_devices()}
            quirks = known_quirks(profiles[one.index])
        except (DriverError, KeyError):
            pass  # it is listed as unusable, with the reason
    features = list(one.features)
    return {**described(one), "features": features, "limits": one.limits, "quirks": quirks}


def _print(one: dict[str, Any]) -> None:
    index = "cpu" if one["index"] is None else one["index"]
    facts([
        ("Device", f"{index}: {one['name']}" + ", the default" * one["default"]),
        *([("Type", one["type"])] if one["index"] is not None else []),
        *([("Driver", one["driver"])] if one["driver"] else []),
        *([("Vulkan", one["api_version"])] if one["api_version"] else []),
        *([("UUID", one["uuid"])] if one["uuid"] else []),
        *([("PCI", one["pci"])] if one["pci"] else []),
        *([("Unusable", one["unusable"])] if one["unusable"] else []),
        *([("Features", ", ".join(one["features"]))] if one["features"] else []),
    ])
    if one["limits"]:
        table(("limit", "value"), [(name, value) for name, value in one["limits"].items()])
    for name, reason in one["quirks"].items():
        print(f"Quirk     {name}: {reason}")
    print()

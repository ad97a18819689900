"""``webnn-vk info``: devices with their features, limits and quirks, and the caches."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import webnn_vk
from webnn_vk.api.inspection import self_test_seconds
from webnn_vk.codegen.disk_cache import cache_state
from webnn_vk.driver import DriverError
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.runtime.device_selection import find_devices, known_quirks, start_up_seconds
from webnn_vk.support.settings import Settings

from . import ToolError
from .caches import saved_graphs
from .devices import described, open_context
from .output import emit, facts, size, table


def info(device: str | None, as_json: bool) -> None:
    """Print the features, limits and quirks of the device (by default of each device), and the
    caches. ``ToolError`` for an unknown device.

    As JSON also each device's whole profile, and ``start_up``: the seconds of what a process does
    before its first graph on the device, by default the one that contexts take, or the "problem"
    why there are none.
    """
    start_up = _start_up(device) if as_json else {}
    found = [_described(one) for one in _chosen(device)]
    cache = cache_state()
    graphs = saved_graphs()
    if as_json:
        emit({"devices": found, "cache": cache, "saved_graphs": graphs, "start_up": start_up})
        return
    for one in found:
        _print(one)
    facts([
        ("Cache", "off" if cache["folder"] is None else
         f"{cache['folder']}: {cache['entries']} shaders, {size(cache['bytes'])}; "
         f"{len(graphs)} saved graphs, {size(sum(graphs.values()))}"),
    ])


def _start_up(device: str | None) -> dict[str, float | str]:
    """What `start_up_seconds` measures, and the self-tests of a float16 product."""
    try:
        settings = Settings.from_environment()
        seconds = start_up_seconds(replace(settings, device=device) if device else settings)
        with open_context(device) as context:
            builder = webnn_vk.MLGraphBuilder(context)
            x = builder.input("x", {"data_type": "float16", "shape": [256, 256]})
            builder.build({"y": builder.matmul(x, x)}).result().destroy()
            return {**seconds, "self_tests": self_test_seconds(context)}
    except (webnn_vk.DOMException, ToolError, TypeError, ValueError) as error:
        return {"problem": str(error)}


def _chosen(device: str | None) -> list[DeviceInfo]:
    infos = webnn_vk.devices()
    if not device:
        return infos
    with open_context(device) as context:
        chosen = context.device_info
    return [i for i in infos if (i.index, i.type) == (chosen.index, chosen.type)] or [chosen]


def _described(one: DeviceInfo) -> dict[str, Any]:
    quirks: dict[str, str] = {}
    profile = None
    if one.index is not None:
        try:
            profiles = {device.index: device.profile for device in find_devices()}
            quirks = known_quirks(profiles[one.index])
            profile = json.loads(profiles[one.index].to_json())
        except (DriverError, KeyError):
            pass  # it is listed as unusable, with the reason
    features = list(one.features)
    return {**described(one), "features": features, "limits": one.limits, "quirks": quirks,
            "profile": profile}


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
    for number, (heap, properties) in enumerate((one["profile"] or {}).get("memory_types", ())):
        print(f"Memory type {number}: heap {heap}, {', '.join(properties) or 'no properties'}")
    for name, reason in one["quirks"].items():
        print(f"Quirk     {name}: {reason}")
    print()

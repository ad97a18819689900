"""How steps are written, in the form of the recordings."""

from __future__ import annotations

from typing import Any

Step = dict[str, Any]


def ref(name: str) -> Step:
    return {"$ref": name}


def on(target: str, call: str, *args: Any, **more: Any) -> Step:
    return {"on": target, "call": call, "args": list(args), **more}


def awaited(target: str, call: str, *args: Any, **more: Any) -> Step:
    return on(target, call, *args, **{"async": True, **more})


def throws(error: str, *calls: Step) -> Step:
    return {"throws": error, "calls": list(calls)}


def typed(kind: str, values: list[Any]) -> Step:
    return {"$typed": kind, "length": len(values), "data": values}


def holds(data: str, kind: str, values: list[Any]) -> Step:
    return {"expectData": data, "as": kind, "length": len(values), "equals": values}

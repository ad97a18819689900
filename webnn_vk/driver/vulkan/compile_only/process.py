"""The process that compiles for a chip that is not in the machine. It reads the modules as JSON
from the standard input: `python -m webnn_vk.driver.vulkan.compile_only.process CHIP RESULT.json`.

Started by `webnn_vk.codegen.isa`, which writes what is read here, with the driver and the chip in
the environment.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.driver.vulkan.errors import VulkanError, VulkanUnavailable

from .device import ChipUnavailable, CompileOnlyDevice

#: The exit status where the driver has no such chip; as in `webnn_vk.codegen.isa`.
NO_CHIP = 3


def main(chip: str, result: str) -> int:
    """Compile the modules of the standard input and write the result; the exit status."""
    requests = [_request(entry) for entry in json.load(sys.stdin)]
    try:
        device = CompileOnlyDevice(chip)
    except (ChipUnavailable, VulkanUnavailable) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return NO_CHIP

    def one(request: PipelineRequest) -> dict[str, Any]:
        try:
            made = device.compile(request)
        except VulkanError as error:
            return {"statistics": {}, "assembly": "", "error": str(error)}
        return {"statistics": made.statistics, "assembly": made.assembly}

    # The driver's compiler runs without the interpreter's lock.
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        compiled = list(pool.map(one, requests))
    answer = {"profile": device.profile.to_json(), "compiled": compiled}
    Path(result).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _request(entry: dict[str, Any]) -> PipelineRequest:
    return PipelineRequest(
        base64.b64decode(entry["spirv"]), entry["bindings"], entry["push_size"],
        tuple((number, bytes.fromhex(value)) for number, value in entry["constants"]),
        entry["name"],
        # The compiler asks for the kind of a binding, not for its format.
        texels=tuple((binding, "r32f") for binding in entry["texels"]),
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The process that compiles for a chip that is not in the machine. It reads modules as JSON from
the standard input, and answers in lines of JSON: the chip's profile, then a result for each module.
`python -m webnn_vk.driver.vulkan.compile_only.process CHIP [--assembly]`, where CHIP is a name for
RADV's null device, or "-" for the only device of the driver.

Started by `webnn_vk.codegen.isa`, which writes what is read here, with the driver and the chip in
the environment.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from typing import Any

from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.driver.vulkan.errors import VulkanError, VulkanUnavailable

from .device import ChipUnavailable, CompileOnlyDevice

#: The exit status where the driver has no such chip; as in `webnn_vk.codegen.isa`.
NO_CHIP = 3


def main(chip: str, *options: str) -> int:
    """Compile the modules of the standard input; the exit status."""
    # Drivers write to the standard output, too.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    entries = json.load(sys.stdin)
    try:
        device = CompileOnlyDevice(None if chip == "-" else chip)
    except (ChipUnavailable, VulkanUnavailable) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return NO_CHIP

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    answer(profile=json.loads(device.profile.to_json()))
    for entry in entries:
        start = time.process_time()
        try:
            made = device.compile(_request(entry, device), assembly="--assembly" in options)
        except VulkanError as error:
            answer(statistics={}, error=str(error), state="refused")
            continue
        answer(statistics=made.statistics, assembly=made.assembly,
               seconds=time.process_time() - start)
    sys.stderr.flush()
    os._exit(0)  # not every driver survives its clean-up beside a shim


def _request(entry: dict[str, Any], device: CompileOnlyDevice) -> PipelineRequest:
    size = entry["subgroup_size"]
    return PipelineRequest(
        base64.b64decode(entry["spirv"]), entry["bindings"], entry["push_size"],
        tuple((number, bytes.fromhex(value)) for number, value in entry["constants"]),
        entry["name"],
        size if "subgroup_size_control" in device.profile.features else 0,
        # The compiler asks for the kind of a binding, not for its format.
        texels=tuple((binding, "r32f") for binding in entry["texels"]),
        full_subgroups=size > 0,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

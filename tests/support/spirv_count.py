"""Counts the SPIR-V modules that became pipelines in a test run and checks each with spirv-val.

Every process of the run writes the modules of its pipelines to the folder named by
`WEBNN_VK_DUMP_SPIRV`, as <SHA-256>.spv: modules from caches and archives too, each one once.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import spirv_validator

# An older spirv-val's message about an extension that it doesn't know: no verdict on the module.
UNKNOWN = re.compile(r"Invalid (opcode: \d+|\w+ operand: \d+)|[Uu]nknown (opcode|extension)")


@dataclass
class Count:
    """The outcome for one folder; file names are the modules' hashes."""

    pipelines: int = 0
    valid: int = 0
    invalid: dict[str, str] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)
    no_validator: bool = False

    @property
    def failed(self) -> bool:
        """Whether a module was found invalid; one that spirv-val can't judge is only named."""
        return self.pipelines != self.valid + len(self.unjudged) and not self.no_validator

    def lines(self) -> list[str]:
        """The text to print."""
        if self.no_validator:
            return [
                f"SPIR-V: {self.pipelines} modules became pipelines, NONE validated: spirv-val is "
                "not installed (Debian/Ubuntu: apt install spirv-tools)"
            ]
        judged = f"SPIR-V: {self.pipelines} modules became pipelines, {self.valid} validated"
        lines = [judged + (f", {len(self.unjudged)} not judged" if self.unjudged else "")]
        for title, modules in (("INVALID", self.invalid), ("not judged", self.unjudged)):
            lines += [f"  {title} {name}: {message}" for name, message in sorted(modules.items())]
        return lines


def count(folder: Path, workers: int = 2) -> Count:
    """Validates every module in `folder`."""
    modules = sorted(folder.glob("*.spv"))
    result = Count(pipelines=len(modules))
    if shutil.which("spirv-val") is None:
        result.no_validator = True
        return result
    with ThreadPoolExecutor(workers) as pool:
        for module, (code, message) in zip(modules, pool.map(_validate, modules), strict=True):
            if code == 0:
                result.valid += 1
            elif UNKNOWN.search(message) and not _newer_fault(module):
                result.valid += 1
            elif UNKNOWN.search(message):
                result.unjudged[module.stem] = message
            else:
                result.invalid[module.stem] = message
    return result


def _newer_fault(module: Path) -> str:
    """The message of the newest installed validator about a module; "" if it accepts the module."""
    newest, *_ = spirv_validator.programs()
    return spirv_validator.fault(newest, module.read_bytes())


def _validate(module: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["spirv-val", "--target-env", "vulkan1.2", str(module)], capture_output=True, text=True
    )
    lines = (done.stderr or done.stdout).strip().splitlines()
    return done.returncode, lines[0] if lines else ""

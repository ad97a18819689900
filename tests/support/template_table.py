"""`shaders/templates.json`: what each template is used with, from the library's own kernels.

`python -m webnn_vk.codegen describe` reads it: the generator knows nothing of the kernels.
"""

from __future__ import annotations

import json
from pathlib import Path

from webnn_vk import kernels
from webnn_vk.codegen.describe import TABLE, summarise


def files() -> dict[Path, str]:
    return {TABLE: json.dumps(summarise(kernels.catalogue(frozenset())), indent=1) + "\n"}

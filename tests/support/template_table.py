"""`shaders/templates.json`: what each template is used with, from the library's own kernels.

`python -m webnn_vk.codegen describe` reads it: the generator knows nothing of the kernels.
"""

from __future__ import annotations

import json
from pathlib import Path

from webnn_vk import kernels
from webnn_vk.codegen.describe import TABLE, summarise
from webnn_vk.gpu import nanoseconds
from webnn_vk.profiler import roofline


def files() -> dict[Path, str]:
    plain = kernels.catalogue(frozenset())
    matrices = kernels.catalogue(kernels.MATRIX_FEATURES)
    products = [spec for spec in matrices if spec.template == "matmul_coopmat.comp.j2"]
    specs = [*plain, *products, nanoseconds.spec(), *roofline.specs()]
    return {TABLE: json.dumps(summarise(specs), indent=1) + "\n"}

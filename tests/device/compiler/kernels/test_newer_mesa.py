"""Kernels that this machine's lavapipe can't run, on the lavapipe of a newer Mesa: cooperative
matrices and integer dot products for real; with --explore in parts of products and in models too.
The same tests run here in their emulations. Memory and semaphores are shared there too."""

from __future__ import annotations

import subprocess

import pytest

from tests.support import judges, newer_mesa
from tests.support.paths import ROOT

FILES = (
    "compiler/kernels/test_coopmat.py compiler/kernels/test_integer_product.py",
    "gpu/test_sharing.py gpu/test_export_fd.py gpu/test_semaphore.py gpu/test_sharing_memory.py",
    *(pytest.param(f"compiler/{name}.py", marks=pytest.mark.explore) for name in (
        "kernels/test_split_k", "kernels/test_block_product", "test_matrices_in_models",
    )),
)
#: What runs of these without --explore: the newer compiler takes ten seconds for each product, and
#: the emulations share all but the matrices.
CHOSEN = "real_form or network or (exact and words)"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FILES)
def test_they_compute_as_the_references(name, tmp_path, request):
    explores = request.config.option.explore
    if reason := newer_mesa.missing():
        judges.skip(reason)
    words, environment = newer_mesa.command(
        tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "--color=no",
        *(f"tests/device/{file}" for file in name.split()),
        *(["-k", CHOSEN] if "coopmat" in name and not explores else []),
    )
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=840
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "lists no cooperative matrices" not in done.stdout, done.stdout[-2000:]

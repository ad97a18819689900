"""NVIDIA GPUs: the rules for any GPU, until measurements on such devices say otherwise."""

from __future__ import annotations

from .gpu import Gpu


class Nvidia(Gpu):
    """Preferences of NVIDIA GPUs."""

    #: llama.cpp on an RTX 3090 (its issue 12767): 3 times its kernels without them.
    fast_matrices = True

"""AMD GPUs: the rules for any GPU, until measurements on such devices say otherwise."""

from __future__ import annotations

from .gpu import Gpu


class Amd(Gpu):
    """Preferences of AMD GPUs."""

    #: llama.cpp on an RX 9070 XT (its pull request 22620): twice its kernels without them. Where
    #: a driver emulates them, as ncnn's issue 6504 saw on RDNA2, tuning has to say otherwise.
    fast_matrices = True

"""Plans of the softmax kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan


def test_simd_groups_keep_rows_of_some_length() -> None:
    """On processors whose lanes can exchange what they have: 2 to 4 vectors of 4 a lane."""
    device = stored_profile("llvmpipe")
    blind = device.replace(features=device.features - {"subgroup_shuffle"})
    for rows, length, profile, kept in (
        (3, 64, device, 2), (1536, 128, device, 4), (70, 100, device, 4), (70, 60, device, 0),
        (70, 132, device, 0), (70, 66, device, 0), (70, 128, blind, 0),
        (70, 128, stored_profile("nvidia_ampere"), 0),
    ):
        x = np.zeros((rows, length), np.float32)
        (dispatch,) = plan(node_of("softmax", x, 1)[0], profile)
        options = dict(dispatch.spec.options)
        by_subgroups = profile.device_type != "cpu"
        assert (dispatch.spec.template == "softmax_kept.comp.j2") == by_subgroups
        assert options.get("shuffle", False) == bool(kept)
        assert dispatch.constants.get("SHUFFLE", 0) == (8 if kept else 0)
        if kept:
            lanes = dispatch.constants["LX"]
            assert not options["group"]
            assert dispatch.constants["KEPT"] == kept
            assert lanes % 8 == 0
            assert dispatch.groups == (-(-8 * rows // lanes), 1, 1)

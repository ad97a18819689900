"""``computePolicy`` of a draft (webnn#923), and the policy that is in effect (webnn#934)."""

from __future__ import annotations

from typing import Literal, get_args

from webnn_vk.runtime.context_state import ContextState

MLComputePolicy = Literal["default", "high-performance", "low-power", "fallback"]
COMPUTE_POLICIES = get_args(MLComputePolicy)

_OF_TYPES: dict[str, MLComputePolicy] = {
    "discrete": "high-performance", "integrated": "low-power", "cpu": "fallback",
    "numpy": "fallback",
}


def effective_policy(context: ContextState, what: str, on_device: bool = True) -> MLComputePolicy:
    """The policy of a context, or of a graph that runs ``on_device`` or on the CPU only:
    "high-performance" on a discrete GPU, "low-power" on an integrated one, "fallback" where a CPU
    computes (software Vulkan too), "default" on other devices. AttributeError, so that ``hasattr``
    is False, in a context without the draft; ``what`` names the attribute."""
    if "compute-policy" not in context.experimental:
        raise AttributeError(
            f"{what}: experimental; ml.create_context(experimental=['compute-policy']) has it"
        )
    return _OF_TYPES.get(context.info.type, "default") if on_device else "fallback"

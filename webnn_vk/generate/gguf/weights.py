"""The weights of a GGUF file by transformers' names, as transformers stores them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from webnn_vk.generate.blocks import Blocks
from webnn_vk.generate.config import DecoderConfig
from webnn_vk.generate.errors import InvalidModelError
from webnn_vk.support.errors import sanitize

from .config import ROPE_FACTORS
from .file import GgufFile

#: What llama.cpp calls the parts of a model.
_PARTS = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm",
}
#: The same within a layer.
_LAYER_PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}
#: The same where the results of attention and of the feed-forward network are normalised.
_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LAYER = re.compile(r"(?:layers|h)\.(\d+)\.(.+)")


def stored_name(name: str, post_norms: bool = False) -> str:
    """llama.cpp's name of a tensor: "blk.0.attn_q.weight" for "layers.0.self_attn.q_proj.weight".
    """
    part, _, kind = name.rpartition(".")
    layer = _LAYER.fullmatch(part)
    if layer is None:
        return f"{_PARTS[part]}.{kind}"
    parts = _LAYER_PARTS | _POST_NORMS if post_norms else _LAYER_PARTS
    return f"blk.{layer[1]}.{parts[layer[2]]}.{kind}"


def _is_transposed(name: str, shape: tuple[int, ...]) -> bool:
    """GPT-2's matrices are [inputs, outputs] in transformers, and [outputs, inputs] here."""
    return ".c_" in name and len(shape) == 2


class GgufWeights:
    """Tensors by name (``source.WeightSource``). Each is read when it is asked for, and not kept.
    """

    def __init__(self, file: GgufFile, config: DecoderConfig) -> None:
        self._file, self._config = file, config
        self._used = {ROPE_FACTORS}

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor's elements, read-only: float32, or float16 where they are stored so.
        InvalidModelError if it is missing or has another shape."""
        array = self._file.floats(self._checked(name, shape))
        if self._config.norm_offset and name.endswith("norm.weight"):
            # The converter has added it.
            return array - np.float32(self._config.norm_offset)
        if _is_transposed(name, shape):
            return array.T
        return self._halves(array) if self._is_permuted(name) else array

    def blocks(self, name: str, shape: tuple[int, int]) -> Blocks | None:
        """See ``WeightSource``."""
        found = self._file.blocks(self._checked(name, shape))
        if found is None or not self._is_permuted(name):
            return found
        return found.rows(self._halves(np.arange(shape[0])))

    def _checked(self, name: str, shape: tuple[int, ...]) -> str:
        """The file's name of a tensor. InvalidModelError if it is missing or has another shape."""
        stored = stored_name(name, self._config.post_norms)
        expected = shape[::-1] if _is_transposed(name, shape) else shape
        found = self._file.shape(stored)
        if found != expected:
            raise InvalidModelError(
                f"tensor {sanitize(stored)[:200]!r} is {list(found)}; {list(expected)} is expected"
            )
        self._used.add(stored)
        return stored

    def _is_permuted(self, name: str) -> bool:
        return self._config.architecture == "llama" and (".q_proj." in name or ".k_proj." in name)

    def _halves(self, array: np.ndarray) -> np.ndarray:
        """Rows of queries or keys as transformers has them. It rotates the elements i and i + n / 2
        of a head together; for llama.cpp, which rotates 2i and 2i + 1, the converter put such pairs
        side by side."""
        heads = array.reshape(-1, self._config.head_size // 2, 2, *array.shape[1:])
        return heads.swapaxes(1, 2).reshape(array.shape)

    def release(self) -> None:
        """See ``WeightSource``."""
        self._file.release()

    def unused(self) -> Iterator[str]:
        """The tensors that nothing has read."""
        return (name for name in self._file.names() if name not in self._used)

"""The graph of a decoder: logits of some tokens, from their ids and the keys and values before.

A graph for S tokens of one sequence has the input ``step``, uint32 [S + 2]: the tokens' ids, the
position of the first, and the number of the token whose logits are computed. A graph for one token
of each of B sequences has ``step`` [2·B]: the ids, then the positions. S may be known only at
dispatch (experimental "dynamic-shapes").

The cache of a sequence, with a capacity C, has two tensors a layer, ``key.N`` and ``value.N``
[C, heads, head size]; sequence R among several has ``key.N.R`` and ``value.N.R``. They are
donated: a run writes the rows of its tokens and reads the rows up to the last of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from webnn_vk.api.builder import MLGraphBuilder, MLOperand, apply_operator
from webnn_vk.compiler.ops.block_product import dequantized
from webnn_vk.compiler.types.dimensions import MLDynamicDimension
from webnn_vk.support.dataclass import dataclass

from .chooser import most_probable
from .config import DecoderConfig
from .device_weights import DeviceWeights, Stack
from .rotary import Rotary


@dataclass
class Decoder:
    """Builds the graphs of a model on a context. ``capacity``: rows of the cache. ``activations``:
    the data type of the cache and of what quantised matrices are multiplied by; everything else is
    computed in the data type of the other weights."""

    config: DecoderConfig
    weights: DeviceWeights
    capacity: int
    activations: str

    def outputs(
        self, builder: MLGraphBuilder, tokens: int | MLDynamicDimension, every: bool = False
    ) -> tuple[dict[str, MLOperand], dict[str, str]]:
        """Outputs and donated inputs of a graph for tokens of one sequence: "logits", float32
        [rows, vocabulary], and "token", int32 [rows], their ``most_probable``. One row, or with
        ``every`` one for each token. A named dimension is that of ``step``, and the builder then a
        SizedBuilder."""
        return _Graph(self, builder, tokens).outputs(every)

    def batch_outputs(
        self, builder: MLGraphBuilder, sequences: int
    ) -> tuple[dict[str, MLOperand], dict[str, str]]:
        """Outputs and donated inputs of a graph for one token of each of several sequences, with a
        row for each."""
        return _BatchGraph(self, builder, sequences).outputs(every=True)

    def names(self) -> list[str]:
        """The tensors of a sequence's cache."""
        layers = range(self.config.layers)
        return [f"{kind}.{layer}" for layer in layers for kind in ("key", "value")]

    def cache_shape(self) -> tuple[int, int, int]:
        """The shape of each tensor of the cache."""
        return self.capacity, self.config.kv_heads, self.config.head_size


class _Graph:
    """One graph while it is described."""

    def __init__(
        self, decoder: Decoder, builder: MLGraphBuilder, tokens: int | MLDynamicDimension
    ) -> None:
        self.b, self.c = builder, decoder.config
        self.tokens: int = tokens  # type: ignore[assignment]
        self.decoder, self.weights = decoder, decoder.weights
        self.data_type = self.weights.data_type
        self.present: dict[str, MLOperand] = {}
        self._weights: dict[tuple[str, ...], MLOperand] = {}
        self._packed: dict[tuple[str, ...], tuple[MLOperand, ...]] = {}
        self._panels: dict[tuple[str, ...], MLOperand] = {}
        self.donated: dict[str, str] = {}
        self.read_step()
        self._rotations: dict[Rotary, tuple[MLOperand, MLOperand]] = {}
        self._seen: dict[tuple[int, int], MLOperand] = {}

    def read_step(self) -> None:
        """The tokens' ids and positions, and how many rows of the cache they attend to."""
        b, tokens = self.b, self.tokens
        named = tokens if isinstance(tokens, MLDynamicDimension) else None
        shape = (tokens + 2,) if named is None else (named,)
        step = b.input("step", {"data_type": "uint32", "shape": shape})
        self.tokens = tokens = step.shape[0] - 2
        self.ids = b.slice(step, [0], [tokens])
        first = b.slice(step, [tokens], [1])
        self.last = b.slice(step, [tokens + 1], [1])
        if named is None:
            numbers = self.constant(np.arange(tokens, dtype=np.uint32))
            count = self.constant(np.array([tokens], np.uint32))
        else:
            table = self.constant(np.arange(named.max_size, dtype=np.uint32))
            numbers, count = b.slice(table, [0], [tokens]), b.slice(table, [tokens], [1])
        self.positions, self.length = b.add(first, numbers), b.add(first, count)

    # -- constants -----------------------------------------------------------------------------
    def constant(self, array: np.ndarray) -> MLOperand:
        return self.b.constant(array)

    def weight(self, *names: str, shapes: tuple[tuple[int, ...], ...]) -> MLOperand:
        """Tensors of the files, one below the other."""
        if names not in self._weights:
            self._weights[names] = self.b.constant(self.weights.weight(names, shapes))
        return self._weights[names]

    def cast(self, x: MLOperand, data_type: str) -> MLOperand:
        return x if x.data_type == data_type else self.b.cast(x, data_type)

    # -- layers --------------------------------------------------------------------------------
    def outputs(self, every: bool) -> tuple[dict[str, MLOperand], dict[str, str]]:
        c, b = self.c, self.b
        names = _GPT2 if c.architecture == "gpt2" else _LLAMA
        x = self.embedded(names.embedding)
        if c.embedding_scale != 1:
            scale = np.array([c.embedding_scale], np.float32)
            x = b.mul(x, self.constant(self.weights.typed(scale)))
        if c.rotary is None:
            table = self.weight("wpe.weight", shapes=((c.context_length, c.width),))
            x = b.add(x, b.gather(table, self.positions))
        layer = self.gpt2_layer if c.architecture == "gpt2" else self.llama_layer
        for number in range(c.layers):
            x = layer(x, number)
        if not every:
            x = b.gather(x, self.last)
        x = self.norm(x, names.norm)
        head = names.embedding if c.tied else "lm_head.weight"
        logits = self.product(x, (head,), ((c.vocabulary, c.width),))
        logits = self.cast(logits, "float32")
        if c.final_softcap:
            cap = self.constant(np.array([c.final_softcap], np.float32))
            logits = b.mul(b.tanh(b.div(logits, cap)), cap)
        return {"logits": logits, "token": most_probable(b, logits), **self.present}, self.donated

    def llama_layer(self, x: MLOperand, n: int) -> MLOperand:
        c, b = self.c, self.b
        to, kv = c.heads * c.head_size, c.kv_heads * c.head_size
        at = f"layers.{n}.self_attn."
        y = self.norm(x, f"layers.{n}.input_layernorm")
        qkv = self.linear(
            y, tuple(f"{at}{p}_proj" for p in "qkv"),
            tuple((rows, c.width) for rows in (to, kv, kv)), c.qkv_bias,
        )
        heads = c.heads + c.kv_heads
        both = b.reshape(b.slice(qkv, [0, 0], [self.tokens, to + kv]),
                         (self.tokens, heads, c.head_size))
        value = b.reshape(b.slice(qkv, [0, to + kv], [self.tokens, kv]),
                          (self.tokens, c.kv_heads, c.head_size))
        if c.qk_norm:
            both = b.mul(self.rms(both), self.head_norms(at))
        both = self.rotated(both, n)
        query = b.slice(both, [0, 0, 0], [self.tokens, c.heads, c.head_size])
        key = b.slice(both, [0, c.heads, 0], [self.tokens, c.kv_heads, c.head_size])
        y = self.attention(query, key, value, n)
        y = self.linear(y, (f"{at}o_proj",), ((c.width, to),), c.output_bias)
        if c.post_norms:
            x = b.add(x, self.norm(y, f"layers.{n}.post_attention_layernorm"))
            y = self.norm(x, f"layers.{n}.pre_feedforward_layernorm")
        else:
            x = b.add(x, y)
            y = self.norm(x, f"layers.{n}.post_attention_layernorm")
        both = self.linear(
            y, tuple(f"layers.{n}.mlp.{p}_proj" for p in ("gate", "up")),
            ((c.inner, c.width),) * 2, c.mlp_bias,
        )
        gate, up = b.split(both, 2, axis=1)
        y = b.mul(self.activated(gate), up)
        y = self.linear(y, (f"layers.{n}.mlp.down_proj",), ((c.width, c.inner),), c.mlp_bias)
        if c.post_norms:
            y = self.norm(y, f"layers.{n}.post_feedforward_layernorm")
        return b.add(x, y)

    def gpt2_layer(self, x: MLOperand, n: int) -> MLOperand:
        c, b = self.c, self.b
        shape = (self.tokens, c.heads, c.head_size)
        y = self.norm(x, f"h.{n}.ln_1")
        qkv = self.convolution(y, f"h.{n}.attn.c_attn", (c.width, 3 * c.width))
        qkv = self.cast(qkv, self.decoder.activations)
        query, key, value = (b.reshape(part, shape) for part in b.split(qkv, 3, axis=1))
        y = self.attention(query, key, value, n)
        x = b.add(x, self.convolution(y, f"h.{n}.attn.c_proj", (c.width, c.width)))
        y = self.convolution(self.norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc", (c.width, c.inner))
        y = self.convolution(self.activated(y), f"h.{n}.mlp.c_proj", (c.inner, c.width))
        return b.add(x, y)

    def attention(
        self, query: MLOperand, key: MLOperand, value: MLOperand, n: int
    ) -> MLOperand:
        """Writes keys and values [S, heads, D] to the cache; attention of queries [S, heads, D]."""
        return self.cached_attention(query, key, value, n, "", self.positions, self.length)

    def cached_attention(
        self, query: MLOperand, key: MLOperand, value: MLOperand, n: int, sequence: str,
        positions: MLOperand, length: MLOperand,
    ) -> MLOperand:
        """`attention` with the cache of a sequence: "" for the only one, else ".R"."""
        c, b, tokens = self.c, self.b, query.shape[0]
        shape = self.decoder.cache_shape()
        rows = b.reshape(positions, (tokens, 1))
        cached = []
        for kind, update in (("key", key), ("value", value)):
            name = f"{kind}.{n}{sequence}"
            past = b.input(name, {"data_type": self.decoder.activations, "shape": shape})
            present = b.scatter_nd(past, rows, self.cast(update, past.data_type))
            self.present[f"new {name}"] = present
            self.donated[name] = f"new {name}"
            cached.append(present)
        group, scale = c.heads // c.kv_heads, c.attention_scale or c.head_size**-0.5
        query = self.cast(query, self.decoder.activations)
        if tokens == 1:
            # Queries of heads that share keys are the rows of one matrix.
            query = b.reshape(query, (c.kv_heads, group, c.head_size))
            keys, values = (b.transpose(t, permutation=(1, 0, 2)) for t in cached)
        else:
            query = b.transpose(
                b.reshape(query, (tokens, c.kv_heads, group, c.head_size)),
                permutation=(1, 2, 0, 3),
            )
            wide = (shape[0], c.kv_heads, 1, c.head_size)
            keys, values = (
                b.transpose(b.reshape(t, wide), permutation=(1, 2, 0, 3)) for t in cached
            )
        result = apply_operator(
            b, "attention", query, keys, values, seen=self.seen(positions, c.window(n)),
            length=length, scale=scale, causal=tokens > 1, softcap=c.attention_softcap,
        )
        if tokens > 1:
            result = b.transpose(result, permutation=(2, 0, 1, 3))
        return b.reshape(result, (tokens, c.heads * c.head_size))

    def seen(self, positions: MLOperand, window: int) -> MLOperand | None:
        """Which rows of the cache are not behind the window of a token, uint8 [S, capacity]."""
        if not 0 < window < self.decoder.capacity:
            return None
        key = id(positions), window
        if key not in self._seen:
            ends = np.arange(self.decoder.capacity, dtype=np.uint32) + np.uint32(window)
            rows = self.b.reshape(positions, (positions.shape[0], 1))
            self._seen[key] = self.b.greater(self.constant(ends), rows)
        return self._seen[key]

    # -- parts of layers -----------------------------------------------------------------------
    def rotated(self, x: MLOperand, n: int) -> MLOperand:
        """[S, heads, D] with a layer's rotations at the tokens' positions, in the cache's type."""
        b, c = self.b, self.c
        rotary = c.local_rotary if c.window(n) and c.local_rotary else c.rotary
        assert rotary is not None
        half = len(rotary.frequencies)
        if rotary not in self._rotations:
            shape = (self.tokens, 1, 2, half)
            cosines, sines = (
                b.reshape(b.gather(self.constant(self.weights.typed(t)), self.positions), shape)
                for t in rotary.tables(self.decoder.capacity)
            )
            self._rotations[rotary] = cosines, sines
        cosines, sines = self._rotations[rotary]
        pairs = b.reshape(x, (self.tokens, x.shape[1], 2, half))
        y = b.add(b.mul(pairs, cosines), b.mul(b.reverse(pairs, axes=[2]), sines))
        return b.reshape(self.cast(y, self.decoder.activations), x.shape)

    def rms(self, x: MLOperand) -> MLOperand:
        last = len(x.shape) - 1
        return apply_operator(self.b, "rms_normalization", x, [last], epsilon=self.c.epsilon)

    def norm(self, x: MLOperand, name: str) -> MLOperand:
        scale = self.weight(f"{name}.weight", shapes=((self.c.width,),))
        if self.c.norm == "rms":
            return self.b.mul(self.rms(x), scale)
        bias = self.weight(f"{name}.bias", shapes=((self.c.width,),))
        return self.b.layer_normalization(
            x, scale=scale, bias=bias, axes=[1], epsilon=self.c.epsilon
        )

    def head_norms(self, at: str) -> MLOperand:
        """The scales of the normalised heads of queries and keys, [heads, D]."""
        c = self.c
        scales = [
            np.tile(self.weights.array(f"{at}{part}_norm.weight", (c.head_size,)), (count, 1))
            for part, count in (("q", c.heads), ("k", c.kv_heads))
        ]
        return self.constant(np.concatenate(scales))

    def linear(
        self, x: MLOperand, names: tuple[str, ...], shapes: tuple[tuple[int, int], ...],
        bias: bool,
    ) -> MLOperand:
        """x · wᵀ + bias, for weights [outputs, inputs] of several layers side by side."""
        c = None
        if bias:
            c = self.weight(
                *(f"{name}.bias" for name in names), shapes=tuple((s[0],) for s in shapes)
            )
        return self.product(x, tuple(f"{name}.weight" for name in names), shapes, c)

    def product(
        self, x: MLOperand, names: tuple[str, ...], shapes: tuple[tuple[int, int], ...],
        c: MLOperand | None = None, inner: int = 1,
    ) -> MLOperand:
        """x times weights, which are summed over their dimension ``inner``, + c."""
        b, stacks = self.b, self.weights.stacks(names, shapes, inner)
        types = [self.decoder.activations if s.packed else self.data_type for s in stacks]
        given = {kind: self.cast(x, kind) for kind in dict.fromkeys(types)}
        if len(stacks) == 1 and stacks[0].is_plain:
            weight = self.weight(*names, shapes=shapes)
            return b.gemm(given[types[0]], weight, c=c, b_transpose=inner == 1)
        made = [
            self.stack_product(given[kind], stack, inner)
            for kind, stack in zip(types, stacks, strict=True)
        ]
        result = made[0] if len(made) == 1 else b.concat(made, 1)
        return result if c is None else b.add(result, c)

    def stack_product(self, x: MLOperand, stack: Stack, inner: int) -> MLOperand:
        b = self.b
        if stack.packed is not None:
            words, scale, *offset = self.packed(stack)
            made: MLOperand = apply_operator(
                b, "block_matmul", x, words, scale, offset=offset[0] if offset else None,
                bits=stack.packed.bits, zero_point=stack.packed.zero_point,
            )
            return made
        if stack.panels is None:
            return b.gemm(
                x, self.weight(*stack.names, shapes=stack.shapes), b_transpose=inner == 1
            )
        # A product for each panel; their columns lie side by side in the result.
        y = b.matmul(b.reshape(x, (1, *x.shape)), self.panels(stack))
        count, columns = y.shape[0], y.shape[2]
        if x.shape[0] != 1:
            y = b.transpose(y, permutation=(1, 0, 2))
        return b.reshape(y, (x.shape[0], count * columns))

    def panels(self, stack: Stack) -> MLOperand:
        """Panels of floats, [count, inputs, columns]."""
        assert stack.panels is not None
        if stack.names not in self._panels:
            self._panels[stack.names] = self.b.constant(stack.panels)
        return self._panels[stack.names]

    def packed(self, stack: Stack) -> tuple[MLOperand, ...]:
        """Words, scales and offsets of packed weights."""
        assert stack.packed is not None
        if stack.names not in self._packed:
            self._packed[stack.names] = tuple(map(self.b.constant, stack.packed.tensors()))
        return self._packed[stack.names]

    def embedded(self, name: str) -> MLOperand:
        """The tokens' rows of the embedding table, [S, width]. Of a packed table only these rows
        become floats."""
        c, b = self.c, self.b
        shape = c.vocabulary, c.width
        (stack,) = self.weights.stacks((name,), (shape,), multiplied=c.tied)
        if stack.is_plain:
            return b.gather(self.weight(name, shapes=(shape,)), self.ids)
        if stack.panels is not None:
            return self.of_panels(self.panels(stack))
        words, scale, *offset = (b.gather(table, self.ids) for table in self.packed(stack))
        rows: MLOperand = dequantized(
            b, words, scale, offset[0] if offset else None, stack.packed.bits,
            stack.packed.zero_point,
        )
        if rows.shape[1] != c.width:
            rows = b.slice(rows, [0, 0], [self.tokens, c.width])
        return rows

    def of_panels(self, panels: MLOperand) -> MLOperand:
        """The tokens' columns of panels, [S, inputs]."""
        b, (_, width, columns) = self.b, panels.shape
        # Element k of column c of panel p is p · width · columns + k · columns + c.
        panel = b.div(self.ids, self.constant(np.array([columns], np.uint32)))
        skipped = self.constant(np.array([columns * (width - 1)], np.uint32))
        first = b.reshape(b.add(self.ids, b.mul(panel, skipped)), (self.tokens, 1))
        steps = np.arange(width, dtype=np.uint32) * np.uint32(columns)
        elements = b.reshape(panels, (math.prod(panels.shape),))
        return b.gather(elements, b.add(first, self.constant(steps)))

    def convolution(self, x: MLOperand, name: str, shape: tuple[int, int]) -> MLOperand:
        """x · w + bias, for weights [inputs, outputs]: GPT-2's Conv1D."""
        c = self.weight(f"{name}.bias", shapes=((shape[1],),))
        return self.product(x, (f"{name}.weight",), (shape,), c, inner=0)

    def activated(self, x: MLOperand) -> MLOperand:
        call: Callable[..., MLOperand] = apply_operator
        return call(self.b, self.c.activation, x)


class _BatchGraph(_Graph):
    """One token of each of several sequences: products have a row for each, attention reads the
    cache of each."""

    def read_step(self) -> None:
        b, sequences = self.b, self.tokens
        step = b.input("step", {"data_type": "uint32", "shape": (2 * sequences,)})
        self.ids, self.positions = b.split(step, 2)
        self.length = b.add(self.positions, self.constant(np.array([1], np.uint32)))
        self.steps = [b.split(operand, sequences) for operand in (self.positions, self.length)]

    def attention(
        self, query: MLOperand, key: MLOperand, value: MLOperand, n: int
    ) -> MLOperand:
        b = self.b
        given = (b.split(operand, self.tokens) for operand in (query, key, value))
        rows = zip(*given, *self.steps, strict=True)
        return b.concat([
            self.cached_attention(q, k, v, n, f".{row}", position, length)
            for row, (q, k, v, position, length) in enumerate(rows)
        ], 0)


@dataclass(frozen=True)
class _Names:
    embedding: str
    norm: str


_LLAMA = _Names("embed_tokens.weight", "norm")
_GPT2 = _Names("wte.weight", "ln_f")

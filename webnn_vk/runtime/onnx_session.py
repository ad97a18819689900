"""Sessions of ONNX Runtime: options, threads, and weights that stay where they are."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from webnn_vk.support import environment, forks
from webnn_vk.support.heap import trim_heap
from webnn_vk.support.processor import cores

_LOG_FATAL = 4
# Whether this process, or one that it was forked from, has created a session.
_used = False


def _after_fork(clean: bool) -> None:
    # At exit, ONNX Runtime would join threads that the child doesn't have.
    if _used:
        forks.leave_out_exit_handlers()


forks.register(_after_fork)


def open_session(
    data: bytes, weights: Mapping[str, np.ndarray], options: Any, in_place: bool = False
) -> tuple[Any, Any]:
    """A session on a model's bytes and the ``weights`` that it names as external data, with
    references to these. ``in_place``: it makes no packed copy of them, which would be faster.
    Raises what ONNX Runtime does."""
    import onnxruntime

    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    if values:
        options.add_external_initializers(list(weights), values)
    if in_place:
        options.add_session_config_entry("session.disable_prepacking", "1")
        # Initializers are passed by name: no optimiser may have renamed them.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        for name, value in zip(weights, values, strict=True):
            options.add_initializer(name, value)
    global _used
    forks.prepare_to_leave()
    _used = True
    # A fork during this would leave the child locks that stay locked.
    with forks.undisturbed():
        session = onnxruntime.InferenceSession(
            data, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    if in_place:
        # Frees its temporary copies of the weights.
        trim_heap()
    return session, values


class _Packed:
    """Marks that weights at an address were packed; every region that reads them holds it."""


_packed: weakref.WeakValueDictionary[tuple[int, int], _Packed] = weakref.WeakValueDictionary()


def pack_first(arrays: Iterable[np.ndarray]) -> tuple[bool, list[_Packed]]:
    """Whether a region may pack these weights: not if other living regions read the bulk of them,
    since graphs for several shapes of a model's inputs would each have a copy, and a new one when
    the first is freed. Also returns the object that the region has to hold while it lives."""
    keys = [(a.__array_interface__["data"][0], a.nbytes) for a in arrays]
    known = sum(key[1] for key in keys if key in _packed)
    held = [_packed.setdefault(key, _Packed()) for key in keys]
    return 2 * known <= sum(size for _, size in keys), held


def plain_options() -> Any:
    """All optimisations except quantised operators, whose 8-bit products saturate on processors
    without VNNI; as many threads as there are cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _LOG_FATAL
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.intra_op_num_threads = threads()
    return options


def threads() -> int:
    """The number of processors that the process may use, or OMP_NUM_THREADS where that is less, as
    Ray and Spark set it for their workers; 0 (ONNX Runtime's own choice) if it may use all."""
    allowed = cores()
    asked = environment.of_engines().get("OMP_NUM_THREADS", "").partition(",")[0]
    if asked.isdecimal() and int(asked):
        allowed = min(allowed, int(asked))
    return 0 if allowed == (os.cpu_count() or 1) else allowed

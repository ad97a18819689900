"""Process-wide state that a test may change and that the next test finds: environment, working
folder, signal handlers, registries of the library and others. Which tests share a process, and in
which order, differs from run to run."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import hypothesis
import numpy as np

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Variables that pytest itself sets.
_PYTEST_VARIABLE = os.environ.encodekey("PYTEST_CURRENT_TEST")  # type: ignore[attr-defined]
#: SIGALRM and the timer belong to the tests' own time limit.
_SIGNALS = {
    name: getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXFSZ", "SIGCHLD")
    if hasattr(signal, name)
}
_LIMITS = ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE")
_GONE = object()
_THREADS = "threads that are no daemons"
#: Seconds after which a thread counts as going on.
_PATIENCE = 60.0
#: Registries and hooks of the library: module, attribute.
REGISTRIES = (
    ("webnn_vk.codegen.render", "_loader.searchpath"),
    ("webnn_vk.compiler.ir.to_onnx.writer", "RULES"),
    ("webnn_vk.compiler.kernels.family", "FAMILIES"),
    ("webnn_vk.compiler.kernels.heuristics.device_classes", "DEVICE_CLASSES"),
    ("webnn_vk.onnx.records", "_RECORDS"),
    ("webnn_vk.compiler.ops.record", "COMPILER_OPERATORS"),
    ("webnn_vk.compiler.ops.record", "OPERATORS"),
)


def state() -> dict[str, Any]:
    """The state by name; equal before and after a test that leaves nothing behind."""
    # Encoded as the system has it: os.environ decodes each entry, which takes longer than all the
    # rest.
    environment = dict(os.environ._data)  # type: ignore[attr-defined]
    environment.pop(_PYTEST_VARIABLE, None)
    found = {
        "os.environ": environment,
        "signal.getsignal()": {n: signal.getsignal(number) for n, number in _SIGNALS.items()},
        "np.geterr()": np.geterr(),
        "sys.modules": {
            name: module for name, module in list(sys.modules.items())
            if module is None or name.startswith("webnn_vk")
        },
        "the working folder": os.getcwd(),
        "sys.path": list(sys.path),
        "sys.gettrace()": sys.gettrace(),
        "threading.gettrace()": threading.gettrace(),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        "gc.isenabled()": gc.isenabled(),
        "the level of logging": (logging.root.level, logging.root.manager.disable,
                                 logging.getLogger("webnn_vk").level),
        "handlers of logging": _handlers(logging.root) + _handlers(logging.getLogger("webnn_vk")),
        "the profile of hypothesis": hypothesis.settings.default,
        _THREADS: _threads(),
    }
    if resource is not None:
        found["limits"] = {n: resource.getrlimit(getattr(resource, n)) for n in _LIMITS}
    for module, path in REGISTRIES:
        if module in sys.modules:
            value: Any = sys.modules[module]
            for name in path.split("."):
                value = getattr(value, name)
            found[f"{module}.{path}"] = dict(value) if isinstance(value, Mapping) else list(value)
    return found


def _handlers(logger: logging.Logger) -> list[Any]:
    return [h for h in logger.handlers if not type(h).__module__.startswith("_pytest")]


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.daemon}


def left(before: Mapping[str, Any]) -> list[str]:
    """The differences from ``before``, in words. Modules and registries that a test imported don't
    count, nor does a thread that ends in time."""
    now = state()
    end = time.monotonic() + _PATIENCE
    while now[_THREADS] - before[_THREADS] and time.monotonic() < end:
        time.sleep(0.01)
        now[_THREADS] = _threads()
    lines = [f"the thread {thread.name} goes on" for thread in now[_THREADS] - before[_THREADS]]
    for name in before.keys() - {_THREADS}:
        old, new = before[name], now.get(name)
        if name == "sys.modules":
            new = {n: m for n, m in now[name].items() if n in old or m is None}
        if new == old:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            lines += [
                f"{name}[{key!r}]: {old.get(key, 'nothing')!r:.200} is now "
                f"{new.get(key, 'gone')!r:.200}"
                for key in [*old, *(new.keys() - old.keys())]
                if old.get(key, _GONE) != new.get(key, _GONE)
            ]
        else:
            lines.append(f"{name}: {old!r:.300} is now {new!r:.300}")
    return sorted(lines)

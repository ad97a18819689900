"""The sources of SPIR-V, in this order: the installed shader archive, the user's cache, a compiler.

A module's address is the hash of its GLSL, the compiler's flags and the float controls; its quick
name is that of its spec and all sources of the generator, and needs no rendering. The archive is
searched by both, and serves machines without a compiler. The cache is searched by the quick name;
the name of its files also contains the compiler's identity: another compiler compiles again
(`disk_cache`). The structure of every module that was not just compiled is checked (`spirv_check`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from webnn_vk.support import environment, forks

from . import spirv, spirv_check
from .archive import ArchiveError, PackStats, ShaderArchive, find_archive, write_archive
from .compiler import FLAGS, Compiler, find_compiler, supports
from .disk_cache import FORMAT, DiskCache
from .glsl import CompilerUnavailable, GlslError, Source
from .spec import KernelSpec
from .template_files import fingerprint

_DEFAULT = "default"
#: The extension for kernels with cooperative matrices: glslang has it from version 14 on.
MATRIX_EXTENSION = "GL_KHR_cooperative_matrix"
#: The extension for kernels with integer dot products: instructions by number.
INTRINSICS_EXTENSION = "GL_EXT_spirv_intrinsics"
#: The number of modules that a store keeps in memory, about 14 kB each.
MAX_REMEMBERED = 1024


class ShaderUnavailable(RuntimeError):
    """Neither shader archive nor cache has the module, and no GLSL compiler works.

    ``failed``: a compiler was found but failed, so the caller may try modules that need none.
    """

    def __init__(self, message: str, *, failed: bool = False) -> None:
        self.failed = failed
        super().__init__(message)


@functools.cache
def _renderer() -> Callable[[KernelSpec], str]:
    """`render.render`. It needs Jinja, which is not loaded where an archive has all modules."""
    with forks.undisturbed():
        from .render import render
    return render


def address(spec: KernelSpec) -> bytes:
    """The key of a spec's module in a shader archive, 32 bytes."""
    controls = ",".join(sorted(spec.features & spirv.FLOAT_CONTROLS.keys()))
    made_with = f"{FORMAT}\n{FLAGS}\n{controls}"
    return hashlib.sha256(f"{made_with}\n{_renderer()(spec)}".encode()).digest()


def quick_name(spec: KernelSpec) -> bytes | None:
    """A second key of a spec's module in a shader archive, 32 bytes. It is valid only while the
    templates and the generator are the same as when the archive was built. It needs no rendering,
    which takes 10 to 30 ms per template."""
    made_by = fingerprint()
    if made_by is None:
        return None
    made_with = f"{FORMAT}\n{FLAGS}\n{made_by.hex()}"
    return hashlib.sha256(f"{made_with}\n{spec.key()}".encode()).digest()


def cache_key(spec: KernelSpec) -> bytes:
    """The key of a spec's module in the user's cache, 32 bytes: found without rendering, where the
    sources of the generator can be read."""
    return quick_name(spec) or address(spec)


class ShaderStore:
    """SPIR-V for specs. Thread-safe. Keeps recently used modules in memory.

    cache_dir: a folder, None for no cache, by default `support.environment.cache_folder()`.
    pack: the path of a shader archive, None for none, by default that of `find_archive`.
    compiler: a `Compiler`, None for none, by default `find_compiler()`.
    """

    def __init__(
        self,
        cache_dir: str | os.PathLike[str] | None = _DEFAULT,
        *,
        pack: str | os.PathLike[str] | None = _DEFAULT,
        compiler: Compiler | str | None = _DEFAULT,
    ) -> None:
        if cache_dir == _DEFAULT:
            cache_dir = environment.cache_folder()
            if cache_dir is None and environment.text("WEBNN_VK_CACHE") is None:
                from webnn_vk.support.warnings import say_once  # rarely needed

                say_once(
                    "no home directory (HOME is not set, and the user has none): shaders are not "
                    "kept from one process to the next; WEBNN_VK_CACHE can name a folder for them"
                )
        #: The user's cache.
        self.cache = DiskCache(cache_dir)
        self._pack = _open_pack(pack)
        self._compiler = find_compiler() if compiler == _DEFAULT else compiler
        self._memo: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        # Whether the compiler supports an extension, once it was tried.
        self._supports: dict[str, bool] = {}
        #: The origins of the modules so far: {"pack": n, "cache": n, "compiler": n}.
        self.origins = {"pack": 0, "cache": 0, "compiler": 0}

    @property
    def has_compiler(self) -> bool:
        """Whether fused kernels can be compiled: a compiler was found and none failed for good."""
        return self._compiler is not None

    @property
    def has_pack(self) -> bool:
        """Whether there is a shader archive."""
        return self._pack is not None

    @property
    def compiler_version(self) -> str:
        """The compiler's name and version; "none" without one. Raises CompilerUnavailable."""
        return "none" if self._compiler is None else self._compiler.version

    def get(self, specs: Sequence[KernelSpec]) -> list[bytes]:
        """The modules of the specs, in their order. Missing ones are compiled in one batch.

        Raises GlslError for GLSL that does not compile, ShaderUnavailable for a missing module.
        """
        with self._lock:
            modules: dict[str, bytes] = {}
            missing: dict[str, KernelSpec] = {}
            for spec in specs:
                key = spec.key()
                if key in modules or key in missing:
                    continue
                module = self._look_up(spec)
                if module is None:
                    missing[key] = spec
                else:
                    modules[key] = module
            if missing:
                modules |= self._compile(list(missing.values()))
            return [modules[spec.key()] for spec in specs]

    def available(self, spec: KernelSpec, *, compiling: bool = True) -> bool:
        """Whether `get` can supply the module: from memory, archive or cache, or, if ``compiling``,
        by a compiler."""
        if compiling and self._compiles(spec):
            return True
        with self._lock:
            return self._look_up(spec) is not None

    def _compiles(self, spec: KernelSpec) -> bool:
        """Whether there is a compiler that supports the extensions of a kernel: older ones lack
        cooperative matrices, or instructions by number. True as well for a compiler that can't be
        asked, as for other kernels."""
        if self._compiler is None:
            return False
        if "cooperative_matrix" in spec.features:
            extension = MATRIX_EXTENSION
        elif "integer_dot_product" in spec.features:
            extension = INTRINSICS_EXTENSION
        else:
            return True
        if extension not in self._supports:
            try:
                self._supports[extension] = supports(self._compiler, extension)
            except CompilerUnavailable:
                return True
        return self._supports[extension]

    def _look_up(self, spec: KernelSpec) -> bytes | None:
        module = self._memo.get(spec.key())
        if module is not None:
            self._memo.move_to_end(spec.key())
            return module
        module, origin = self._by_quick_name(spec), "pack"
        if module is None:
            identity = None if self._compiler is None else self._compiler.identity
            module, origin = self.cache.get(cache_key(spec), identity), "cache"
        if module is None and self._compiler is not None:
            # While Jinja renders its first template, which takes 0.1 s too.
            self._compiler.prepare()
        if module is None and self._pack is not None:
            module, origin = self._checked(self._pack.get(address(spec))), "pack"
        if module is not None:
            self._remember(spec, module, origin)
        return module

    def _by_quick_name(self, spec: KernelSpec) -> bytes | None:
        """The module in the archive, found without rendering."""
        name = None if self._pack is None else quick_name(spec)
        return None if name is None else self._checked(self._pack.named(name))

    def _checked(self, module: bytes | None) -> bytes | None:
        if module is not None:
            try:
                spirv_check.check(module)
            except spirv.SpirvError as error:
                warnings.warn(
                    f"a shader of the archive {self._pack.path} is not used: {error}",
                    RuntimeWarning, stacklevel=5,
                )
                return None
        return module

    def _remember(self, spec: KernelSpec, module: bytes, origin: str) -> None:
        self._memo[spec.key()] = module
        self.origins[origin] += 1
        if len(self._memo) > MAX_REMEMBERED:
            self._memo.popitem(last=False)

    def keep(self, modules: Mapping[KernelSpec, bytes]) -> None:
        """Keep modules that come from elsewhere in memory, for as long as recently used ones."""
        with self._lock:
            for spec, module in modules.items():
                self._memo[spec.key()] = module
            while len(self._memo) > MAX_REMEMBERED:
                self._memo.popitem(last=False)

    def _compile(self, specs: list[KernelSpec]) -> dict[str, bytes]:
        names = ", ".join(sorted({spec.template for spec in specs}))
        if self._compiler is None:
            raise ShaderUnavailable(
                f"no GLSL compiler, and neither archive nor cache has the kernel of {names}; "
                "install glslang-tools (glslangValidator), or unset WEBNN_VK_GLSLANG if it is none"
            )
        compiler = self._compiler
        try:
            render = _renderer()
            results = compiler.compile([Source(render(s), s.template) for s in specs])
        except CompilerUnavailable as error:
            if not error.temporary:
                self._compiler = None  # a hanging compiler would cost the time-out again
            raise ShaderUnavailable(
                f"the GLSL compiler for {names} does not work: {error}", failed=True
            ) from error
        modules = {}
        for spec, result in zip(specs, results, strict=True):
            if isinstance(result, GlslError):
                continue
            module = spirv.add_float_controls(spirv.strip(result), spec.features)
            modules[spec.key()] = module
            self.cache.put(cache_key(spec), compiler.identity, module)
            self._remember(spec, module, "compiler")
        for spec, result in zip(specs, results, strict=True):  # after the others were stored
            if isinstance(result, GlslError):
                from .origins import placed  # only for errors

                raise placed(result, spec)
        return modules


def _open_pack(pack: str | os.PathLike[str] | None) -> ShaderArchive | None:
    if pack == _DEFAULT:
        pack = find_archive()
    if pack is None:
        return None
    try:
        return ShaderArchive(pack)
    except ArchiveError as error:
        warnings.warn(f"the shader archive is not used: {error}", RuntimeWarning, stacklevel=3)
        return None


def build_pack(
    specs: Iterable[KernelSpec], path: str | os.PathLike[str], compiler: Any = None,
    left_out: Mapping[str, int] | None = None,
) -> PackStats:
    """Compiles every spec and writes the shader archive. Used by the wheel build.

    compiler: by default the compiler of a `ShaderStore`. left_out: how many modules of each
    template are missing, for `ShaderArchive.about`. Raises ShaderUnavailable without a compiler,
    GlslError for GLSL that does not compile.
    """
    from .similarity import chained  # NumPy, which only a build needs

    ordered = sorted(set(specs), key=KernelSpec.key)
    store = ShaderStore(None, pack=None, compiler=compiler or "default")
    made = dict(zip(ordered, store.get(ordered), strict=True))
    # Neighbours are compressed together. Each module is followed by the most similar one of its
    # template; where several are, by one with the same features and about as long.
    ordered.sort(key=lambda spec: (spec.template, sorted(spec.features), len(made[spec])))
    ordered = [
        group[place]
        for _, same in itertools.groupby(ordered, key=lambda spec: spec.template)
        for group in (list(same),) for place in chained([made[spec] for spec in group])
    ]
    places = list(map(address, ordered))
    modules = {place: made[spec] for place, spec in zip(places, ordered, strict=True)}
    names = {quick_name(spec): place for spec, place in zip(ordered, places, strict=True)}
    names.pop(None, None)
    for module in modules.values():
        spirv_check.check(module)
    about = {
        "compiler": store.compiler_version, "templates": sorted({s.template for s in ordered}),
        "left_out": dict(left_out or {}),
    }
    return write_archive(modules, path, about, names)

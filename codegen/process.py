"""GLSL compilers that run as programs, and all failures of programs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from webnn_vk.support.cached_property import cached_property

from . import spirv
from .files import identity_of, is_shortage, read_regular
from .glsl import TARGET, CompilerUnavailable, GlslError, Source

#: Limits of a run in seconds: for the start, and for each shader, which takes 0.02 to 0.2 s.
START_SECONDS = 30.0
SHADER_SECONDS = 2.0
#: The limit of a run's output in bytes, messages included. A large kernel has 200 kB.
LARGEST = 256 << 20

#: Every compiler for Vulkan 1.2 accepts this.
_PROBE = Source("#version 450\nlayout(local_size_x = 1) in;\nvoid main() {}\n", "probe")


class ProcessCompiler:
    """`glslc` (many files per process) or `glslangValidator` (one file per process, several
    processes at a time).

    Raises CompilerUnavailable, with the reason, for a program that crashes, hangs, writes anything
    but SPIR-V or rejects valid GLSL.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity = identity_of(path)
        self._many = Path(path).stem == "glslc"

    @cached_property
    def version(self) -> str:
        """The program's name and the first line that `--version` prints."""
        try:
            with tempfile.TemporaryDirectory(prefix="webnn_vk_") as folder:
                _, log = self._run(["--version"], folder, 1)
        except OSError as error:
            raise self._unavailable(error) from None
        first = next(iter(log.splitlines()), "")
        return f"{Path(self.path).name}: {first.strip()}"

    def prepare(self) -> None:
        """Nothing precedes a process."""

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable."""
        if not sources:
            return []
        try:
            with tempfile.TemporaryDirectory(
                prefix="webnn_vk_", ignore_cleanup_errors=True
            ) as folder:
                return self._compile(folder, sources)
        except OSError as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: OSError) -> CompilerUnavailable:
        return CompilerUnavailable(f"{self.path}: {error}", temporary=is_shortage(error))

    def _compile(self, folder: str, sources: Sequence[Source]) -> list[bytes | GlslError]:
        from webnn_vk.support import parallel_map  # not needed where archive or cache have all

        for i, source in enumerate(sources):
            Path(folder, f"{i}.comp").write_text(source.text, encoding="utf-8", newline="\n")
        workers = min(len(sources), os.cpu_count() or 1)
        size = -(-len(sources) // workers) if self._many else 1
        numbers = range(len(sources))
        batches = [numbers[i : i + size] for i in range(0, len(sources), size)]
        ended = parallel_map.spread(lambda batch: self._batch(folder, batch), batches, workers)
        results = [
            self._result(folder, i, sources[i], code, log)
            for batch, (code, log) in zip(batches, ended, strict=True) for i in batch
        ]
        if all(isinstance(result, GlslError) for result in results) and sources != [_PROBE]:
            self._check_takes_good_glsl(results[0])
        return results

    def _check_takes_good_glsl(self, refused: bytes | GlslError) -> None:
        """Raises CompilerUnavailable if the compiler is broken and rejects everything."""
        (result,) = self.compile([_PROBE])
        if isinstance(result, GlslError) and isinstance(refused, GlslError):
            raise CompilerUnavailable(
                f"{self.path} refuses every shader: {refused.log[:1000] or 'without a message'}"
            )

    def _batch(self, folder: str, batch: Sequence[int]) -> tuple[int, str]:
        files = [f"{i}.comp" for i in batch]
        if self._many:
            flags = [f"--target-env={TARGET}", "-fshader-stage=comp", "-O0", "-c"]
            return self._run([*flags, *files], folder, len(files))
        output = ["-o", f"{files[0]}.spv"]
        return self._run(["--target-env", TARGET, "-S", "comp", *output, *files], folder, 1)

    def _run(self, arguments: list[str], folder: str, shaders: int) -> tuple[int, str]:
        """The exit status and the output. Raises OSError, CompilerUnavailable."""
        # The output goes to a file. A pipe would have to be read while waiting, without a limit.
        with tempfile.TemporaryFile(dir=folder) as log:
            process = subprocess.Popen(
                [self.path, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )
            try:
                self._wait(process, folder, log.fileno(), START_SECONDS + SHADER_SECONDS * shaders)
            finally:
                _kill(process)
            log.seek(0)
            written = log.read(min(os.fstat(log.fileno()).st_size, LARGEST))
            return process.returncode, written.decode("utf-8", "replace")

    def _wait(
        self, process: subprocess.Popen[bytes], folder: str, log: int, seconds: float
    ) -> None:
        begin = looked = time.monotonic()
        while process.poll() is None:
            time.sleep(0.002)
            now = time.monotonic()
            if now - begin > seconds:
                raise CompilerUnavailable(f"{self.path} did not end within {seconds:.0f} s")
            if now - looked > 0.2:
                looked = now
                if os.fstat(log).st_size + _bytes_in(folder) > LARGEST:
                    raise CompilerUnavailable(f"{self.path} writes more than {LARGEST} bytes")

    def _result(
        self, folder: str, i: int, source: Source, code: int, log: str
    ) -> bytes | GlslError:
        if code < 0:
            raise CompilerUnavailable(f"{self.path} ended by signal {-code}: {log[-1000:].strip()}")
        try:
            module = read_regular(Path(folder, f"{i}.comp.spv"), LARGEST)
        except FileNotFoundError:
            if not code:
                raise CompilerUnavailable(
                    f"{self.path} wrote no SPIR-V and says nothing is wrong: {log[:1000].strip()}"
                ) from None
            return self._refused(i, source, log)
        try:
            spirv.info(module)
        except spirv.SpirvError as error:
            raise CompilerUnavailable(f"{self.path} does not write SPIR-V: {error}") from None
        return module

    def _refused(self, i: int, source: Source, log: str) -> GlslError:
        lines = log.splitlines()
        # From the messages for several files, take the ones that name this file; else all lines but
        # the bare file name.
        errors = [n for n in lines if n.startswith(f"{i}.comp:")] if self._many else []
        errors = errors or [n for n in lines if n.strip() != f"{i}.comp"]
        return GlslError(source.name, "\n".join(errors), source.text)


def _bytes_in(folder: str) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a running program and the processes that it started."""
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, 9)  # it leads its own session
    except (AttributeError, OSError):
        process.kill()
    process.wait()

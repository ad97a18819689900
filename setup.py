"""Packages, and the build hook that puts precompiled SPIR-V into the wheel."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

# Runs in a process of its own, on the tree as it will be installed: the wheel's own layout is what
# maps webnn_vk.codegen, and nothing stays imported in the build backend.
MAKE_PACK = "import sys; sys.path.insert(0, sys.argv[1]); from webnn_vk.tools import pack; \
sys.exit(pack.main(sys.argv[2:]))"


class BuildWithPack(build_py):
    """`build_py`, then the SPIR-V pack beside `webnn_vk.codegen` (not in editable installs)."""

    def run(self) -> None:
        super().run()
        if getattr(self, "editable_mode", False):
            return
        tree = Path(self.build_lib).resolve()
        command = [sys.executable, "-c", MAKE_PACK, str(tree), str(tree / "webnn_vk/codegen")]
        # Without bytecode: what the hook imports here must not end up in the wheel.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            self.warn(f"no precompiled SPIR-V in this wheel: {last}")


packages = find_packages(include=["webnn_vk", "webnn_vk.*"])
# Folders of the checkout that are packages below webnn_vk.
FOLDERS = ("codegen", "shaders", "examples")
for name in FOLDERS:
    packages += [f"webnn_vk.{name}"]
    packages += [f"webnn_vk.{name}.{sub}" for sub in find_packages(name)]

setup(
    packages=packages,
    package_dir={f"webnn_vk.{name}": name for name in FOLDERS},
    package_data={
        "webnn_vk": ["py.typed", "*.pyi", "**/*.json"],
        "webnn_vk.examples": ["*.txt"],
        "webnn_vk.shaders": ["*.j2", "**/*.j2"],
    },
    cmdclass={"build_py": BuildWithPack},
)

"""Packages, and the build hook that puts precompiled SPIR-V into the wheel. An archive that was
built from the same sources before comes from the user's cache (webnn_vk/tools/archive_cache.py)."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

# Runs in a process of its own, on the tree as it will be installed: the wheel's own layout is what
# maps webnn_vk.codegen, and nothing stays imported in the build backend.
MAKE_ARCHIVE = "import sys; sys.path.insert(0, sys.argv[1]); \
from webnn_vk.tools import shader_archive; sys.exit(shader_archive.main(sys.argv[2:]))"


WITHOUT_PACK = "WEBNN_VK_BUILD_WITHOUT_PACK"


class BuildWithPack(build_py):
    """`build_py`, then the SPIR-V pack beside `webnn_vk.codegen` (not in editable installs).

    A build without a pack fails, unless WEBNN_VK_BUILD_WITHOUT_PACK=1 asks for it: without a GLSL
    compiler at run time such a wheel would compute everything on the CPU.
    """

    def run(self) -> None:
        super().run()
        if getattr(self, "editable_mode", False):
            return
        tree = Path(self.build_lib).resolve()
        pack = tree / "webnn_vk" / "codegen" / "pack.bin"
        if os.environ.get(WITHOUT_PACK) == "1":
            pack.unlink(missing_ok=True)  # of an earlier build in the same folder
            return
        command = [sys.executable, "-c", MAKE_ARCHIVE, str(tree), str(pack.parent)]
        # Without bytecode: what the hook imports here must not end up in the wheel. With any
        # compiler: WEBNN_VK_GLSLANG is about running.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "WEBNN_VK_GLSLANG": "auto"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        print(done.stdout, end="")  # shown by `pip install -v`
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise SetupError(
                f"the shaders could not be compiled: {last}\n"
                "Building webnn_vk needs a GLSL compiler: glslangValidator or glslc on PATH "
                "(Debian, Ubuntu: apt install glslang-tools; macOS: brew install glslang; Windows: "
                "the Vulkan SDK), or on Linux x86_64 pip install vkdispatch-vulkan-native.\n"
                f"{WITHOUT_PACK}=1 builds without precompiled shaders: graphs then run on Vulkan "
                "only where a compiler is installed."
            )


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
        "webnn_vk": ["py.typed", "**/*.pyi", "**/*.json", "**/*.html", "**/*.css", "**/*.js",
                     "**/*.j2"],
        "webnn_vk.examples": ["*.ipynb", "*.png", "*.txt"],
        "webnn_vk.shaders": ["*.j2", "**/*.j2", "*.json"],
    },
    cmdclass={"build_py": BuildWithPack},
)

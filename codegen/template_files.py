"""The files of the shader templates, and hashes of them. Needs no Jinja."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

#: The library's templates: a folder beside this one, in a checkout and in an installed package.
SHADERS = Path(__file__).resolve().parent.parent / "shaders"
#: The folders where templates are found, the first ones first.
SEARCH_PATH = [str(SHADERS)]


def fingerprint() -> bytes | None:
    """A hash of everything that determines the output of `render` besides the spec: the templates
    and the generator. None where these files can't be read."""
    return _fingerprint(tuple(SEARCH_PATH))


@functools.lru_cache(maxsize=4)
def _fingerprint(folders: tuple[str, ...]) -> bytes | None:
    digest = hashlib.sha256()
    try:
        for name in ("render.py", "library.py", "spec.py"):
            digest.update(Path(__file__).with_name(name).read_bytes())
        found: dict[str, Path] = {}
        for folder in map(Path, folders):
            for path in folder.rglob("*.j2"):
                found.setdefault(path.relative_to(folder).as_posix(), path)
        for name, path in sorted(found.items()):
            text = path.read_bytes()
            digest.update(f"{name}\0{len(text)}\0".encode() + text)
    except OSError:
        return None  # an installation without sources
    return digest.digest()


def forget() -> None:
    """Read the files again at the next use."""
    _fingerprint.cache_clear()


def source_hash(templates: Iterable[str]) -> str:
    """The hash of templates in `SHADERS` and of the library that they include."""
    digest = hashlib.sha256()
    library = sorted((SHADERS / "lib").glob("*.j2"))
    for path in [*library, *(SHADERS / name for name in sorted(templates))]:
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\n".encode() + text)
    return digest.hexdigest()

"""The documentation as a site: it builds without a warning, and its pages load in a browser."""

from __future__ import annotations

import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import webnn_vk
from tests.support.paths import ROOT
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ops import OPERATORS

pytest.importorskip("mkdocstrings")
PAGES = sorted(
    path.relative_to(ROOT / "docs").with_suffix("").as_posix()
    for path in (ROOT / "docs").rglob("*.md")
)
#: Pages generated from `examples/` by `docs/hooks/examples.py`.
EXAMPLES = {
    f"examples/{path.stem}": path
    for path in sorted((ROOT / "examples").iterdir())
    if path.suffix in (".py", ".ipynb") and path.stem != "__init__"
}
NOTEBOOKS = [page for page, path in EXAMPLES.items() if path.suffix == ".ipynb"]
CONSOLE = re.compile(r"CONSOLE[^\n]*\]\s*(.*)")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built with warnings as errors: broken links and anchors, names without documentation."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder], cwd=ROOT,
        capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_pages_and_menu_agree(site):
    assert {p.relative_to(site).with_suffix("").as_posix() for p in site.rglob("*.html")} == {
        *PAGES, *EXAMPLES, "404"
    }
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^ +- .*?: (\S+)\.md$", menu, re.MULTILINE)) == sorted(
        [*PAGES, *NOTEBOOKS]
    )


def test_every_page_shows_the_version(site):
    shown = f"webnn_vk {webnn_vk.__version__}, Apache-2.0"
    for page in site.rglob("*.html"):
        assert shown in page.read_text(encoding="utf-8"), page


def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"', text)
        loaded += re.findall(r'<link rel="(?:stylesheet|preload|icon)"[^>]* href="([^"]+)"', text)
        assert loaded and not [name for name in loaded if "//" in name], page


def test_the_reference_has_every_operator(site):
    text = (site / "api" / "builder.html").read_text(encoding="utf-8")
    for name in OPERATORS:
        # Operators internal to the compiler are not methods.
        public = hasattr(MLGraphBuilder, name)
        assert (f'id="webnn_vk.MLGraphBuilder.{name}"' in text) == public, name


def plain(path: Path) -> str:
    """Text of a page without tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", EXAMPLES)
def test_an_example_is_shown_whole(page, site):
    path = EXAMPLES[page]
    listed = (site / "examples.html").read_text(encoding="utf-8")
    assert f'href="{page}.html"' in listed
    text = plain(site / f"{page}.html")
    # The download is the file itself.
    assert (site / "examples" / path.name).read_bytes() == path.read_bytes()
    if path.suffix == ".py":
        assert path.read_text(encoding="utf-8").rstrip().rpartition("\n\n\n")[2] in text
        return
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert "".join(cell["source"]) in text
            for output in cell["outputs"]:
                assert "".join(output["text"]).strip() in text


def opened(address: str, profile: Path) -> tuple[str, list[str]]:
    """A page's document after its scripts have run, and their console messages."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--no-first-run", "--enable-logging=stderr", f"--user-data-dir={profile}",
         "--virtual-time-budget=5000", "--dump-dom", address],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, CONSOLE.findall(done.stderr)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.sample(0.2)
def test_loads_in_a_browser(page, address, tmp_path):
    loads(page, address, tmp_path)


@pytest.mark.parametrize("page", EXAMPLES)
@pytest.mark.sample(0.1)
def test_an_example_loads_in_a_browser(page, address, tmp_path):
    loads(page, address, tmp_path)


def loads(page: str, address: str, tmp_path: Path) -> None:
    """The page loads, and its script runs without console messages."""
    text, console = opened(f"{address}/{page}.html", tmp_path)
    assert "<article" in text and len(text) > 10_000
    # The page's script has run.
    assert 'data-md-component="search-result"' in text and "md-top" in text
    assert console == []


def test_what_scripts_complain_of_is_seen(tmp_path):
    _, console = opened("data:text/html,<script>console.error('planted')</script>", tmp_path)
    assert len(console) == 1 and "planted" in console[0]

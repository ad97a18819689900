"""Pages in headless Chromium, driven by a script on the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.support import judges

#: The page in a frame of any width (a window has at least 500 pixels); stores the messages that it
#: receives.
FRAME = """<!doctype html><body><iframe src="PAGE" width="WIDTH" height="900" style="border: 0">
</iframe><pre id="told"></pre><script>
addEventListener("message", e => { document.getElementById("told").textContent = e.data; });
</script>"""


def browse(path: Path, width: int, theme: str) -> dict:
    """The driver's result for a page; the console must stay empty."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        judges.skip("a browser: chromium is not installed")
    frame = path.with_name("frame.html")
    frame.write_text(FRAME.replace("PAGE", f"{path.name}#{theme}").replace("WIDTH", str(width)))
    done = subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={path.parent / 'browser'}", "--window-size=1400,1000", "--dump-dom",
         "--virtual-time-budget=1000", f"file://{frame}"],
        capture_output=True, text=True, timeout=120,
    )
    assert ":CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<pre id="told">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:]
    text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text)

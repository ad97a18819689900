"""Writes the output of `webnn-vk operators` into the README."""

import re

from tests.support.paths import ROOT
from webnn_vk.tools.operators import table

README = ROOT / "README.md"
MARKS = r"(<!-- operators -->\n).*?(<!-- /operators -->)"

text = README.read_text(encoding="utf-8")
text = re.sub(MARKS, lambda found: f"{found[1]}{table()}\n{found[2]}", text, flags=re.DOTALL)
README.write_text(text, encoding="utf-8")

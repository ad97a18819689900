"""Pictures in a browser, driven by a script: groups that open, search, hover, before and after, at
two widths and in both colour schemes; nothing overlaps, whichever groups are open."""

from __future__ import annotations

import pytest

from tests.support.browser import browse
from tests.unit.profiler.pictures.graphs import chain
from webnn_vk.profiler.pictures import Box, Picture, page, svg

pytest.importorskip("fast_sugiyama")
LAYER = ["matmul", "softmax", "matmul", "add", "norm", "gemm", "gelu", "gemm", "add", "norm"]

#: Used by both drivers: boxes of a level that touch, and texts wider than their boxes.
LOOK = """
const told = {};
const shown = node => node.getClientRects().length > 0;
const all = (query, of = document) => [...of.querySelectorAll(query)].filter(shown);
const text = node => node.textContent.trim();
function overlaps() {
  const wrong = [];
  for (const items of all(".items")) {
    const boxes = [...items.children].map(item => [item, (item.classList.contains("opened")
      ? item.querySelector(":scope > .open > .frame")
      : item.querySelector(":scope > .box, :scope > .shut > .box")).getBoundingClientRect()]);
    boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
      if (p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom)
        wrong.push(["boxes", text(a).slice(0, 20), text(b).slice(0, 20)]);
    }));
    for (const [item, box] of boxes) {
      const frame = items.closest(".open");
      const around = (frame ? frame.querySelector(":scope > .frame")
        : items.closest("svg")).getBoundingClientRect();
      if (box.left < around.left || box.right > around.right || box.bottom > around.bottom)
        wrong.push(["outside", text(item).slice(0, 20)]);
      for (const line of all(":scope > text, :scope > .shut > text, :scope > .open > text", item)) {
        if (line.getBoundingClientRect().right > box.right) wrong.push(["long", text(line)]);
      }
    }
  }
  return wrong;
}
const count = kind => all(`.item.${kind}`).length;
const box = () => {
  const b = document.querySelector(".items").closest("svg").getBoundingClientRect();
  return [Math.round(b.width), Math.round(b.height)];
};
const tell = () => parent.postMessage(JSON.stringify(told), "*");
"""
OF_FILE = LOOK + """
const press = node => node.dispatchEvent(new MouseEvent("click", {bubbles: true}));
const svg = document.querySelector("svg.picture");
told.closed = [count("group"), count("node")]; told.size = box();
press(all(".item.group > .shut")[0]);
told.opened = [count("group"), count("node"), count("from"), count("to")];
told.grown = box()[1] > told.size[1]; told.one = overlaps();
press(all(".open > .bar")[0]);
told.again = box(); told.shut = [count("group"), count("node")];
all(".item.group > .shut")[0].dispatchEvent(
  new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));
told.byKey = count("node") > told.closed[1];
pictures.open(svg, () => true);
told.all = count("node"); told.overlaps = overlaps();
told.ink = getComputedStyle(document.querySelector(".item text")).fill;
tell();
"""
OF_PAGE = LOOK + """
const choice = document.querySelector("#graph select"), field = document.querySelector("input");
const button = name => [...document.querySelectorAll("#graph button")].find(b => text(b) === name);
const options = [...choice.options].map(text);
told.width = innerWidth; told.options = options;
told.theme = document.documentElement.dataset.theme;
told.overflow = document.documentElement.scrollWidth - innerWidth;
told.noBefore = button("Before").hidden;
const start = document.querySelector(".item").getBoundingClientRect();
told.begins = start.left >= 0 && start.right <= innerWidth;
choice.selectedIndex = 1; choice.onchange();
told.after = [count("new"), count("gone")];
button("Before").click(); told.before = [count("new"), count("gone")];
button("After").click();
field.value = "GELU float32"; field.dispatchEvent(new Event("input"));
told.found = [text(field.nextSibling), all(".item.node.found").length];
button("Next").click(); button("Next").click();
told.next = [text(field.nextSibling), all(".item.node.found").length > 0];
const found = all(".item.current")[0].getBoundingClientRect();
const drawing = document.querySelector(".drawing").getBoundingClientRect();
told.inSight = found.top < drawing.bottom && found.bottom > drawing.top;
button("Open all").click(); told.all = count("node"); told.overlaps = overlaps();
const first = () => document.querySelector(".drawing .item").getBoundingClientRect();
told.beginsOpen = first().left >= 0 && first().right <= innerWidth;
const before = box()[0];
button("+").click(); told.larger = box()[0] > before; button("−").click();
button("Close all").click(); told.closed = all(".opened").length;
const item = all(".item.node, .item.group > .shut")[0];
const at = item.getBoundingClientRect();
item.dispatchEvent(new PointerEvent("pointermove",
  {clientX: at.x + 9, clientY: at.y + 9, bubbles: true}));
const tipBox = document.getElementById("tip").getBoundingClientRect();
told.hover = [getComputedStyle(tip).visibility, tip.textContent.split("\\n")[0],
  tipBox.left >= 0 && tipBox.right <= innerWidth];
const ground = () => getComputedStyle(document.body).backgroundColor;
const was = ground(); document.getElementById("theme").click(); told.changed = ground() !== was;
tell();
"""


@pytest.fixture(scope="module")
def layers() -> Picture:
    """60 layers with a mask that all of them read: 605 boxes, with long names."""
    names = ["gather", "add", "mul", "sub", "norm"]
    names += [f"{name} [encoder.layer.{n}.WWW]" for n in range(60) for name in LAYER]
    return chain(names, residual=5, shared=True)


def test_a_file(layers, tmp_path):
    path = tmp_path / "graph.svg"
    script = f"<script><![CDATA[{{{OF_FILE}}}]]></script></svg>\n"
    path.write_text(svg(layers).removesuffix("</svg>\n") + script, encoding="utf-8")
    told = browse(path, 390, "")
    groups, alone = told["closed"]
    assert 10 <= groups <= 30 and alone < 10
    assert told["opened"][1] > alone and told["opened"][2] >= 1 <= told["opened"][3]
    assert told["grown"] and told["one"] == []
    assert told["shut"] == told["closed"] and told["again"] == told["size"] and told["byKey"]
    assert told["all"] == len(layers.boxes) - 3 and told["overlaps"] == []


@pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (390, "light")])
def test_a_page(layers, tmp_path, width, theme):
    changed = Picture("after fuse", (
        *layers.boxes[:-1], Box("node", "gelu", reads=(605,), writes=(700,), mark="new"),
        layers.boxes[-1],
    ), {**layers.values, 700: "float32[4]"})
    gone = Picture("", (*layers.boxes[:-1], Box("node", "x", reads=(605,), mark="gone")),
                   layers.values)
    path = tmp_path / "graph.html"
    text = page("a model", "so much of it", [(layers, layers), (gone, changed)])
    path.write_text(text.replace("</body>", f"<script>{{{OF_PAGE}}}</script></body>"),
                    encoding="utf-8")
    told = browse(path, width, theme)
    assert (told["width"], told["theme"]) == (width, theme) and told["overflow"] <= 0
    assert told["options"] == ["a chain: 605 operators", "after fuse: 606 operators"]
    assert told["noBefore"] and told["begins"]
    assert told["after"][0] >= 1 and told["after"][1] == 0
    assert told["before"][1] >= 1 and told["before"][0] == 0
    # The one that the pass has made writes a value without readers: it shows no type.
    assert told["found"][0] == "60 found"
    assert told["next"] == ["2 of 60", True]
    assert told["inSight"]
    assert told["all"] == 606 and told["overlaps"] == [] and told["beginsOpen"]
    assert told["larger"] and told["closed"] == 0
    assert told["hover"][0] == "visible" and told["hover"][1] and told["hover"][2]
    assert told["changed"]

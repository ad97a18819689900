"""The page of a profile in a browser: search, sort, hover, zoom and colour scheme, driven by a
script; its appearance at two widths."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import browse
from tests.unit.profiler.test_report import made_up  # noqa: F401 - a fixture
from webnn_vk.profiler.page import page
from webnn_vk.profiler.report import report_of

#: Runs after the page's own script, and reports its findings to the surrounding page.
DRIVER = """
<script>
{
const told = {};
const rows = () => [...document.querySelectorAll("#body tr")].map(row => row.cells[3].textContent);
const seen = () => ({text: tip.textContent, shown: getComputedStyle(tip).visibility === "visible"});
function hover(node) {
  const box = node.getBoundingClientRect();
  const at = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true};
  node.dispatchEvent(new PointerEvent("pointermove", at));
  const where = document.getElementById("tip").getBoundingClientRect();
  const inside = where.left >= 0 && where.right <= innerWidth && where.bottom <= innerHeight;
  return {...seen(), inside};
}
function type(text) {
  const field = document.getElementById("search");
  field.value = text;
  field.dispatchEvent(new Event("input"));
}
const ground = () => getComputedStyle(document.body).backgroundColor;
const header = i => document.querySelectorAll("#head button")[i];
told.width = innerWidth;
told.overflow = document.documentElement.scrollWidth - innerWidth;
told.first = rows();
header(3).click(); told.byName = rows();
header(3).click(); told.byNameFalling = rows();
header(1).click(); told.byTime = rows();
told.sorted = document.querySelectorAll("#head th")[1].getAttribute("aria-sort");
type("ELEMENTWISE vulkan"); told.found = rows();
told.count = document.getElementById("count").textContent;
type("nothing"); told.nothing = rows().length;
type("");
const families = [...document.querySelectorAll("#families button")];
told.families = families.map(button => button.textContent);
families[1].click(); told.family = rows(); families[1].click(); told.again = rows().length;
told.facts = [...document.querySelectorAll("#facts dd")].map(value => value.textContent);
told.runs = [...document.querySelectorAll("#body tr")].map(row => row.cells[2].textContent);
told.sums = [...document.querySelectorAll("#sums tr")].map(
  row => [...row.cells].map(c => c.textContent));
told.hoverRow = hover([...document.querySelectorAll("#timeline text")].find(
  t => t.textContent === "batches"));
told.slices = document.querySelectorAll("#timeline rect").length;
told.hoverSlice = hover([...document.querySelectorAll("#timeline rect")].find(
  r => r.dataset.tip.startsWith("matmul")));
told.hoverPoint = hover(document.querySelector("#roofline circle"));
told.hoverBlock = hover(document.querySelector("#memory rect"));
told.hoverNothing = hover(document.querySelector("h1"));
const wide = () => +document.querySelector("#timeline rect").getAttribute("width");
const before = wide();
document.getElementById("closer").click();
told.window = document.getElementById("window").textContent;
document.getElementById("whole").click();
told.whole = wide() === before;
told.drawn = [...document.querySelectorAll("#drawn .item > .box")].map(
  b => [b.parentNode.getAttribute("class"), b.parentNode.textContent.replaceAll("\\n", "")]);
told.hoverKernel = hover(document.querySelector("#drawn .item.kernel > .box"));
told.graphs = [...document.querySelectorAll("#drawn option")].map(o => o.textContent);
told.theme = document.documentElement.dataset.theme;
const first = ground(); document.getElementById("theme").click();
told.changed = first !== ground();
told.overlaps = [];
// Every column can be scrolled to, inside its section.
const list = document.getElementById("list"), heads = [...document.querySelectorAll("#head th")];
told.columns = heads.filter(head => {
  list.scrollLeft = head.offsetLeft - heads[0].offsetLeft;
  const box = head.getBoundingClientRect(), around = list.getBoundingClientRect();
  return box.width > 0 && box.left >= around.left - 1 && box.right <= around.right + 1;
}).length;
told.note = document.getElementById("timenote").innerText;
told.mouse = !matchMedia("(hover: none)").matches;
// An edge ends at what is said of its value: it is not seen between the letters.
told.through = [...document.querySelectorAll("#drawn .flow")].filter(text => {
  const under = text.previousElementSibling, box = text.getBoundingClientRect();
  const cover = under.getBoundingClientRect();
  const edges = text.closest(".level").querySelector(".edges");
  return !(cover.left <= box.left && cover.right >= box.right && cover.top <= box.top + 2
    && cover.bottom >= box.bottom - 2
    && edges.compareDocumentPosition(under) & Node.DOCUMENT_POSITION_FOLLOWING
    && getComputedStyle(under).fill === getComputedStyle(text.closest("svg")).backgroundColor);
}).map(text => text.textContent);
told.flows = document.querySelectorAll("#drawn .flow").length;
// Times with many digits.
from = 0; to = 0.11018; timeline();
for (const id of ["timeline", "roofline", "memory"]) {
  const texts = [...document.querySelectorAll(`#${id} text`)].map(
    t => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
    if (p.left < q.right + 8 && q.left < p.right + 8 && p.top < q.bottom - 2
        && q.top < p.bottom - 2)
      told.overlaps.push([id, a, b]);
  }));
}
parent.postMessage(JSON.stringify(told), "*");
}
</script>
"""
@pytest.mark.full
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_the_page_in_a_browser(made_up, tmp_path, width, theme):  # noqa: F811
    text = page(made_up, report_of(made_up))
    path = tmp_path / "report.html"
    path.write_text(text.replace("</body>", f"{DRIVER}</body>"), encoding="utf-8")
    told = browse(path, width, theme)
    assert (told["width"], told["theme"]) == (width, theme)
    assert told["overflow"] <= 0 and told["overlaps"] == []
    assert told["columns"] == 9
    wheel = "; so does the wheel with Ctrl or Shift" * told["mouse"]
    assert told["note"].endswith(f"Closer and Farther zoom, dragging moves{wheel}.")
    assert told["flows"] > 2 and told["through"] == []
    product, relu, sort = "matmul [a]", "<b>& + relu", "sort"
    assert told["first"] == [product, relu, sort]
    assert told["byName"] == [relu, product, sort] == told["byNameFalling"][::-1]
    # 1 s, 0.25 s and 0.2 s each.
    assert told["byTime"] == [product, sort, relu] and told["sorted"] == "descending"
    assert told["found"] == [relu] and told["count"].startswith("1 of 3: ")
    assert told["nothing"] == 0
    assert told["families"] == ["matmul 75.5 %", "elementwise 15.1 %", "numpy 9.4 %"]
    assert told["family"] == [relu] and told["again"] == 3
    assert told["facts"][:2] == ["2in 4.000 s", "2 of 2"] and told["runs"] == ["2", "1 of 2", "2"]
    sums = {row[0]: row[1:] for row in told["sums"]}
    assert sums["upload0.000 MB, time on the device"] == ["2 ×", "100.00 ms", "200.00 ms"]
    assert told["hoverRow"]["shown"] and told["hoverRow"]["text"].startswith("a batch: recorded")
    # Two waits, two batches, a CPU step, four kernels, two uploads.
    assert told["slices"] == 11
    assert told["hoverSlice"]["shown"] and told["hoverSlice"]["inside"]
    assert told["hoverSlice"]["text"].startswith("matmul [a]\nmatmul: 1.000 s, from 600.00 ms on")
    assert "of the roof" in told["hoverPoint"]["text"] and told["hoverPoint"]["shown"]
    lines = told["hoverBlock"]["text"].splitlines()
    assert lines == ["256 B at 0 B", f"from step 0: {product}", f"to step 1: {relu}"]
    assert not told["hoverNothing"]["shown"]
    # The kernels take 2.0 and 0.4 seconds, the step of the CPU 0.25.
    (_, first), (_, second), (_, third), *ends = told["drawn"]
    assert first == "xfloat32[64]" and second.startswith("matmul  ") and len(ends) == 2
    assert "75.5%" in second and "15.1%" in third
    assert [classes for classes, _ in told["drawn"]] == [
        "item input", "item kernel vulkan", "item kernel vulkan", "item node cpu", "item output"]
    assert told["hoverKernel"]["text"].startswith(product) and told["hoverKernel"]["shown"]
    assert told["graphs"] == ["as it ran: 2 kernels, 1 other"]
    assert told["window"] == "950.00 ms to 2.850 s" and told["whole"] and told["changed"]


def test_the_page_needs_nothing_else(made_up):  # noqa: F811
    text = page(made_up, report_of(made_up))
    assert "default-src 'none'" in text
    assert not re.search(r'(?:src|href)\s*=\s*"|@import|url\(|fetch\(|XMLHttpRequest', text)
    # Users' names can't end the script.
    made_up.lines[0] = tuple(
        line.__class__(("</script><b>",), line.device, line.kernel) for line in made_up.lines[0]
    )
    text = page(made_up, report_of(made_up))
    assert text.count("</script>") == 1 and "\\u003c/script>\\u003cb>" in text

const SVG = "http://www.w3.org/2000/svg";
const clear = node => { while (node.firstChild) node.firstChild.remove(); };
function put(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}
function cell(row, name, text, className) {
  const node = document.createElement(name);
  node.textContent = text;
  if (className) node.className = className;
  row.append(node);
  return node;
}
const time = s => s < 1e-3 ? (s * 1e6).toFixed(1) + " µs"
  : s < 1 ? (s * 1e3).toFixed(2) + " ms" : s.toFixed(3) + " s";
const bytes = n => n < 1e3 ? n + " B" : n < 1e6 ? (n / 1e3).toFixed(1) + " kB"
  : n < 1e9 ? (n / 1e6).toFixed(2) + " MB" : (n / 1e9).toFixed(2) + " GB";
const percent = share => share === null ? "" : (100 * share).toFixed(1) + " %";
// A colour for each family of kernels, the same everywhere; of middle lightness, for both themes.
const families = [...new Set(data.rows.flatMap(row => row.slices.map(slice => slice[3])))].sort();
const colour = family => `hsl(${(families.indexOf(family) * 137.5 + 210) % 360} 52% 52%)`;

find("device").textContent = data.device;
for (const [name, value, about] of data.facts) {
  const group = document.createElement("div");
  for (const [kind, text] of [["dt", name], ["dd", value]]) {
    const node = document.createElement(kind);
    node.textContent = text;
    group.append(node);
  }
  if (about) cell(group.lastChild, "small", about);
  find("facts").append(group);
}

// -- timeline
const ends = data.rows.flatMap(row => row.slices.map(slice => slice[1]));
let from = 0, to = ends.reduce((a, b) => Math.max(a, b), 1e-6);
const last = to;
function timeline() {
  const svg = find("timeline"), width = Math.max(svg.clientWidth, 280);
  const left = 70, high = 26, inner = width - left - 12, height = data.rows.length * high + 24;
  clear(svg);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const x = t => left + (t - from) / (to - from) * inner;
  const ticks = Math.max(Math.min(Math.floor(inner / 100), 8), 2);
  for (let i = 0; i <= ticks; i++) {
    const at = x(from + (to - from) * i / ticks);
    put(svg, "line", {x1: at, x2: at, y1: 0, y2: height - 20, class: "axis"});
    put(svg, "text", {x: at, y: height - 6, "text-anchor": i === ticks ? "end" : "middle"},
      time(from + (to - from) * i / ticks));
  }
  data.rows.forEach((row, number) => {
    const top = number * high + 4;
    put(svg, "text", {x: 0, y: top + 13, "data-tip": row.about}, row.name);
    let drawn = -1;
    for (const [start, end, name, family] of row.slices) {
      if (end < from || start > to) continue;
      const begin = Math.max(x(start), left), stop = Math.min(x(end), left + inner);
      // What is narrower than a third of a pixel beside the last one can't be seen.
      if (stop - drawn < 0.33) continue;
      drawn = stop;
      put(svg, "rect", {x: begin, y: top, width: Math.max(stop - begin, 0.5), height: high - 8,
        fill: colour(family),
        "data-tip": `${name}\n${family}: ${time(end - start)}, from ${time(start)} on`});
    }
    if (row.left_out) put(svg, "text", {x: left + inner, y: top + 13, "text-anchor": "end"},
      `and ${row.left_out} more`);
  });
  find("window").textContent = `${time(from)} to ${time(to)}`;
}
function zoom(factor, middle = (from + to) / 2) {
  const span = Math.min(Math.max((to - from) * factor, last / 1e5), last);
  from = Math.min(Math.max(middle - (middle - from) / (to - from) * span, 0), last - span);
  to = from + span;
  timeline();
}
find("closer").onclick = () => zoom(0.5);
find("farther").onclick = () => zoom(2);
find("whole").onclick = () => { from = 0; to = last; timeline(); };
find("timeline").addEventListener("wheel", event => {
  if (!event.ctrlKey && !event.shiftKey) return;
  event.preventDefault();
  const box = find("timeline").getBoundingClientRect();
  const place = from + Math.max(event.clientX - box.left - 70, 0) / (box.width - 82) * (to - from);
  zoom((event.deltaY || event.deltaX) < 0 ? 0.8 : 1.25, place);
}, {passive: false});
let held = null;
find("timeline").addEventListener("pointerdown", event => { held = [event.clientX, from, to]; });
addEventListener("pointerup", () => { held = null; });
addEventListener("pointermove", event => {
  if (!held || to - from >= last) return;
  const width = find("timeline").getBoundingClientRect().width - 82;
  const moved = (held[0] - event.clientX) / width * (held[2] - held[1]);
  const start = Math.min(Math.max(held[1] + moved, 0), last - (held[2] - held[1]));
  to = start + held[2] - held[1]; from = start;
  timeline();
});

find("timenote").textContent = (data.measured < data.runs ? `Of ${data.runs} runs the ` +
  `${data.measured} that were measured are drawn. ` : "") + "Closer and Farther zoom, dragging moves";
cell(find("timenote"), "span", "; so does the wheel with Ctrl or Shift", "mouse");
find("timenote").append(".");

// -- kernels: shares are of all runs, those that were not measured included
const total = data.kernels.reduce((sum, kernel) => sum + kernel.total, 0) || 1;
const longest = data.kernels.reduce((a, kernel) => Math.max(a, kernel.total), 0) || 1;
const rate = (count, kernel) => kernel.seconds > 0 ? count * kernel.runs / kernel.seconds / 1e9 : 0;
const columns = [
  ["share", kernel => kernel.total, kernel => percent(kernel.total / total)],
  ["a run", kernel => kernel.seconds / kernel.runs, kernel => time(kernel.seconds / kernel.runs)],
  ["runs", kernel => kernel.runs, kernel => kernel.runs < kernel.graph_runs
    ? `${kernel.runs} of ${kernel.graph_runs}` : String(kernel.runs)],
  ["operators", kernel => kernel.operators, kernel => kernel.operators],
  ["device", kernel => kernel.device, kernel => kernel.device],
  ["kernel", kernel => kernel.kernel, kernel => `${kernel.kernel} ${kernel.variant}`],
  ["GFLOP/s", kernel => rate(kernel.flops, kernel), kernel => rate(kernel.flops, kernel).toFixed(2)],
  ["GB/s", kernel => rate(kernel.bytes, kernel), kernel => rate(kernel.bytes, kernel).toFixed(2)],
  ["of roof", kernel => kernel.roof ?? -1, kernel => percent(kernel.roof)],
];
const words = new Set([3, 4, 5]);
let order = 0, falling = true;
function kernels() {
  const wanted = find("search").value.toLowerCase().split(/\s+/).filter(word => word);
  const shown = data.kernels.filter(kernel => {
    const text = `${kernel.operators} ${kernel.device} ${kernel.kernel} ${kernel.variant}`.toLowerCase();
    return wanted.every(word => text.includes(word));
  });
  const key = columns[order][1];
  shown.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (falling ? -1 : 1));
  const body = find("body");
  clear(body);
  for (const kernel of shown) {
    const row = body.insertRow();
    row.dataset.tip = `${kernel.operators}\n${kernel.device}: ${time(kernel.seconds)} in ${kernel.runs} runs, ` +
      `${(kernel.flops / 1e6).toFixed(3)} MFLOP, ${bytes(kernel.bytes)} each`;
    columns.forEach(([, , text], i) => {
      const made = cell(row, "td", text(kernel), i === 3 ? "name" : words.has(i) ? "" : "number");
      if (i === 0) {
        const bar = document.createElement("div");
        bar.className = "bar";
        bar.style.width = `${100 * kernel.total / longest}%`;
        bar.style.background = colour(kernel.kernel);
        made.append(bar);
      }
    });
  }
  const part = shown.reduce((sum, kernel) => sum + kernel.total, 0);
  find("count").textContent = `${shown.length} of ${data.kernels.length}: ${percent(part / total)}, ` +
    `${time(part)} of all runs`;
  [...find("head").children].forEach((head, i) => head.setAttribute("aria-sort",
    i !== order ? "none" : falling ? "descending" : "ascending"));
  [...find("head").children].forEach((head, i) => {
    head.firstChild.textContent = columns[i][0] + (i !== order ? "" : falling ? " ↓" : " ↑");
  });
}
columns.forEach(([name], i) => {
  const head = cell(find("head"), "th", "", words.has(i) ? "" : "number");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  button.onclick = () => { falling = i === order ? !falling : !words.has(i); order = i; kernels(); };
  head.append(button);
});
find("search").oninput = kernels;
const byFamily = new Map();
for (const kernel of data.kernels)
  byFamily.set(kernel.kernel, (byFamily.get(kernel.kernel) || 0) + kernel.total);
for (const [family, seconds] of [...byFamily].sort((a, b) => b[1] - a[1])) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(document.createElement("i"), `${family} ${percent(seconds / total)}`);
  button.firstChild.style.background = colour(family);
  button.onclick = () => {
    find("search").value = find("search").value === family ? "" : family;
    kernels();
  };
  find("families").append(button);
}

// -- roofline: operations per byte against operations per second
function roofline() {
  const svg = find("roofline"), width = Math.max(svg.clientWidth, 280), height = 270;
  clear(svg);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const points = data.kernels.filter(k => k.device === "vulkan" && k.flops > 0 && k.bytes > 0
    && k.seconds > 0).map(k => ({kernel: k, x: k.flops / k.bytes, y: k.flops * k.runs / k.seconds}));
  if (!points.length) {
    find("roofnote").textContent = "No kernel on the device has floating-point operations and a time.";
    svg.setAttribute("viewBox", `0 0 ${width} 1`);
    return;
  }
  const roof = data.roofline, knee = roof ? roof.flops / roof.bandwidth : 1;
  const xs = points.map(p => p.x).concat(roof ? [knee] : []);
  const ys = points.map(p => p.y).concat(roof ? [roof.flops] : []);
  const low = list => Math.floor(Math.log10(Math.min(...list)) - 0.1);
  const top = list => Math.ceil(Math.log10(Math.max(...list)) + 0.1);
  const [x0, x1, y0, y1] = [low(xs), top(xs), low(ys), top(ys)];
  const left = 82, bottom = 40, right = 12;
  const px = v => left + (Math.log10(v) - x0) / (x1 - x0) * (width - left - right);
  const py = v => height - bottom - (Math.log10(v) - y0) / (y1 - y0) * (height - bottom - 10);
  const unit = e => e >= 12 ? `${10 ** (e - 12)} TFLOP/s` : e >= 9 ? `${10 ** (e - 9)} GFLOP/s`
    : e >= 6 ? `${10 ** (e - 6)} MFLOP/s` : e >= 3 ? `${10 ** (e - 3)} kFLOP/s` : `${10 ** e} FLOP/s`;
  for (let e = x0; e <= x1; e++) {
    put(svg, "line", {x1: px(10 ** e), x2: px(10 ** e), y1: 10, y2: height - bottom, class: "axis"});
    put(svg, "text", {x: px(10 ** e), y: height - bottom + 17, "text-anchor": "middle"},
      e < 0 ? `1/${10 ** -e}` : `${10 ** e}`);
  }
  for (let e = y0; e <= y1; e++) {
    put(svg, "line", {x1: left, x2: width - right, y1: py(10 ** e), y2: py(10 ** e), class: "axis"});
    put(svg, "text", {x: left - 6, y: py(10 ** e) + 4, "text-anchor": "end"}, unit(e));
  }
  put(svg, "text", {x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle"},
    "FLOP per byte of memory");
  if (roof) {
    const start = Math.max(10 ** x0, 10 ** y0 / roof.bandwidth);
    put(svg, "path", {class: "roof", d: `M${px(start)} ${py(start * roof.bandwidth)}L${px(knee)} ` +
      `${py(roof.flops)}L${width - right} ${py(roof.flops)}`});
  }
  // The small ones on top, where they can be pointed at.
  points.sort((a, b) => b.kernel.total - a.kernel.total);
  for (const {kernel, x, y} of points) put(svg, "circle", {cx: px(x), cy: py(y),
    r: 3 + 9 * Math.sqrt(kernel.total / total), fill: colour(kernel.kernel), "fill-opacity": 0.75,
    "data-tip": `${kernel.operators}\n${kernel.kernel} ${kernel.variant}\n${(y / 1e9).toFixed(2)} ` +
      `GFLOP/s at ${x.toFixed(2)} FLOP per byte` +
      (kernel.roof === null ? "" : `, ${percent(kernel.roof)} of the roof`)});
  find("roofnote").textContent = roof ? `The line is what the device did in a probe: ` +
    `${(roof.flops / 1e9).toFixed(1)} GFLOP/s, ${(roof.bandwidth / 1e9).toFixed(1)} GB/s. ` +
    "Points are kernels, larger ones take more of the time; under the slope memory is their " +
    "limit, under the level part arithmetic." : "The device was not probed: no line is drawn.";
}

// -- memory
const choice = find("graph");
data.memory.forEach((memory, i) => {
  const option = document.createElement("option");
  option.value = i;
  option.textContent = `graph ${i}`;
  choice.append(option);
});
choice.hidden = data.memory.length < 2;
function memory() {
  const svg = find("memory"), width = Math.max(svg.clientWidth, 280), height = 270;
  clear(svg);
  const about = data.memory[choice.value || 0];
  if (!about || !about.blocks.length) {
    svg.setAttribute("viewBox", `0 0 ${width} 1`);
    find("memorynote").textContent = "There are no intermediates on the device.";
    return;
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const left = 62, bottom = 40, right = 12;
  const px = line => left + line / about.lines * (width - left - right);
  const py = at => height - bottom - at / about.arena * (height - bottom - 10);
  for (let i = 0; i <= 4; i++) {
    const at = about.arena * i / 4;
    put(svg, "line", {x1: left, x2: width - right, y1: py(at), y2: py(at), class: "axis"});
    put(svg, "text", {x: left - 6, y: py(at) + 4, "text-anchor": "end"}, bytes(Math.round(at)));
  }
  const names = data.names[choice.value || 0];
  const live = new Array(about.lines).fill(0);
  about.blocks.forEach(({block, offset, size, first, last: end}, i) => {
    const at = about.bases[block] + offset;
    for (let line = first; line <= end; line++) live[line] += size;
    put(svg, "rect", {x: px(first), y: py(at + size), width: Math.max(px(end + 1) - px(first), 1),
      height: Math.max(py(at) - py(at + size) - 0.5, 0.5), fill: `hsl(${(i * 137.5) % 360} 45% 55%)`,
      "data-tip": `${bytes(size)} at ${bytes(at)}\nfrom step ${first}: ${names[first]}\n` +
        `to step ${end}: ${names[end]}`});
  });
  put(svg, "text", {x: (left + width - right) / 2, y: height - 20, "text-anchor": "middle"},
    `steps of the graph, 0 to ${about.lines - 1}`);
  const most = live.reduce((a, b) => Math.max(a, b), 0);
  find("memorynote").textContent = `Intermediates share ${bytes(about.arena)}, of which at most ` +
    `${bytes(most)} is in use at once; weights take ${bytes(about.weights)} beside them.`;
}
choice.onchange = memory;

for (const [name, count, seconds, about] of data.sums) {
  const row = find("sums").insertRow();
  cell(cell(row, "td", name), "small", about);
  cell(row, "td", `${count} ×`, "number");
  cell(row, "td", count ? time(seconds / count) : "", "number");
  cell(row, "td", time(seconds), "number");
}
// -- graph: as it ran, and between passes where it was recorded
if (data.graphs.length) panel(find("drawn"), data.graphs);
else find("drawn").textContent = data.notdrawn;

function draw() { timeline(); roofline(); memory(); }
addEventListener("resize", draw);
kernels();
draw();

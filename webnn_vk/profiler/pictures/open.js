// Opens and closes the groups of pictures: everything else in the picture makes room.
"use strict";
(() => {
const WIDTH = 212, GAP = 30, LINE = 15, MARGIN = 14, HEAD = 24;
const child = (node, name) => [...node.children].find(c => c.classList.contains(name));
const level = open => child(open.lastElementChild, "level");
const isOpen = item => item.classList.contains("opened");

// Places what is in a level, groups in it first; its width and height.
function arrange(node) {
  const items = [...child(node, "items").children].map(item => {
    const [x, row, height, flows] = item.dataset.at.split(",").map(Number);
    const size = isOpen(item) ? unfold(item) : {width: WIDTH, height};
    return {item, x, row, ...size, flows, whole: size.height + LINE * flows + (flows ? 4 : 0)};
  });
  const heights = [], wider = new Map();
  for (const {x, row, width, whole} of items) {
    heights[row] = Math.max(heights[row] || 0, whole);
    wider.set(x, Math.max(wider.get(x) || 0, width - WIDTH));
  }
  // An open group moves the columns beside its own apart.
  const columns = [...wider].filter(([, more]) => more > 0);
  const shifted = x => columns.reduce(
    (at, [column, more]) => at + (column < x ? more : column === x ? more / 2 : 0), x);
  const tops = [];
  let at = MARGIN;
  for (let row = 0; row < heights.length; row++) { tops[row] = at; at += (heights[row] || 0) + GAP; }
  let right = 0;
  for (const one of items) {
    one.middle = shifted(one.x);
    const left = one.middle - one.width / 2;
    right = Math.max(right, left + one.width);
    one.item.setAttribute("transform", `translate(${left} ${tops[one.row]})`);
    const [, , closed] = one.item.dataset.at.split(",");
    child(one.item, "flows").setAttribute("transform",
      `translate(${(one.width - WIDTH) / 2} ${one.height - closed})`);
  }
  for (const path of child(node, "edges").children) {
    const [source, target, start, end] = path.dataset.edge.split(",").map(Number);
    const from = items[source], to = items[target];
    let x = from.middle + start, y = tops[from.row] + heights[from.row];
    let d = `M${x} ${tops[from.row] + from.height}V${y}`;
    const curve = (to, down) => {
      d += `C${x} ${y + GAP / 2} ${to} ${down - GAP / 2} ${to} ${down}`;
      [x, y] = [to, down];
    };
    for (const bend of path.dataset.bends ? path.dataset.bends.split(";") : []) {
      const [column, row] = bend.split(",").map(Number);
      curve(shifted(column), tops[row]);
      y += heights[row];
      d += `V${y}`;
      right = Math.max(right, x + 8);
    }
    curve(to.middle + end, tops[to.row]);
    path.setAttribute("d", d + "m-3 -6l3 6l3 -6");
  }
  return {width: right + MARGIN, height: at - GAP + MARGIN};
}
function unfold(item) {
  const open = child(item, "open"), size = arrange(level(open));
  for (const [name, height] of [["frame", size.height + HEAD], ["bar", HEAD]]) {
    child(open, name).setAttribute("width", size.width);
    child(open, name).setAttribute("height", height);
  }
  return {width: size.width, height: size.height + HEAD};
}
function settle(svg) {
  let width = 0, height = 0, left = 0;
  const panels = [...svg.querySelectorAll(":scope > .panels > .panel")];
  for (const panel of panels.length ? panels : [svg]) {
    const size = arrange(child(panel, "level"));
    if (panels.length) panel.setAttribute("transform", `translate(${left} 0)`);
    left += size.width; width = Math.max(left, width); height = Math.max(size.height, height);
  }
  if (panels.length) { width = Math.max(width, svg.dataset.least); height += 2 * HEAD + MARGIN; }
  const scale = Number(svg.dataset.scale || 1);
  svg.setAttribute("width", width * scale);
  svg.setAttribute("height", height * scale);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
}
function turn(item, open) {
  item.classList.toggle("opened", open);
  child(item, "shut").style.display = open ? "none" : "";
  child(item, "open").style.display = open ? "" : "none";
}
function toggled(event) {
  const button = event.target.closest && event.target.closest(".item > .shut, .open > .bar");
  if (!button || event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  const item = button.closest(".group");
  turn(item, !isOpen(item));
  settle(item.closest("svg.picture"));
}
document.addEventListener("click", toggled);
document.addEventListener("keydown", toggled);
// For pages: places everything again, opens all groups or those around some boxes.
globalThis.pictures = {settle, open(svg, wanted) {
  for (const item of svg.querySelectorAll(".item.group")) turn(item, wanted(item));
  settle(svg);
}};
})();

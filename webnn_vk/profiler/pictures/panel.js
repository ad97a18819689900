// The pictures of a page: which of them, before or after, how large, search, groups open or shut.
function panel(place, graphs) {
  const make = (parent, name, about = {}) => parent.appendChild(
    Object.assign(document.createElement(name), about));
  const tools = make(place, "div", {className: "tools"});
  const scroll = make(place, "div", {className: "scroll drawing"});
  const choice = make(tools, "select", {ariaLabel: "Graph"});
  for (const graph of graphs) make(choice, "option", {textContent: graph.title});
  choice.hidden = graphs.length < 2;
  const before = make(tools, "button", {type: "button", textContent: "Before"});
  const search = make(tools, "input", {type: "search", placeholder: "Search operators, shapes"});
  search.setAttribute("aria-label", "Search the graph");
  const count = make(tools, "span", {className: "faint"});
  let scale = 1, isBefore = false, at = -1;
  const svg = () => scroll.firstElementChild;

  function draw() {
    const graph = graphs[choice.selectedIndex];
    before.hidden = !graph.before;
    isBefore = isBefore && Boolean(graph.before);
    before.textContent = isBefore ? "After" : "Before";
    // Made by svg.py, which escapes what users have named.
    scroll.innerHTML = isBefore ? graph.before : graph.svg;
    resize(scale);
    mark();
    begin();
  }
  // Wide pictures begin in their middle.
  function begin() {
    const first = svg().querySelector(".item").getBoundingClientRect();
    const place = scroll.getBoundingClientRect();
    scroll.scrollLeft += first.left + first.width / 2 - place.left - place.width / 2;
    scroll.scrollTop = 0;
  }
  function turn(open) { pictures.open(svg(), () => open); begin(); }
  function resize(wanted) {
    scale = Math.min(Math.max(wanted, 0.2), 3);
    svg().dataset.scale = scale;
    pictures.settle(svg());
  }
  const tip = item =>
    (item.dataset.tip || item.querySelector(":scope > .shut").dataset.tip).toLowerCase() + " " +
    [...item.querySelectorAll(":scope > .flows > text")].map(text => text.textContent).join(" ");
  function matches() {
    const words = search.value.toLowerCase().split(/\s+/).filter(word => word);
    if (!words.length) return [];
    return [...svg().querySelectorAll(".item:not(.group):not(.from):not(.to)")].filter(
      item => words.every(word => tip(item).includes(word)));
  }
  // Those found, and the groups that they are in.
  function mark() {
    for (const item of svg().querySelectorAll(".found")) item.classList.remove("found");
    const found = matches();
    for (const item of found) {
      for (let node = item; node; node = node.parentNode.closest(".item")) {
        node.classList.add("found");
      }
    }
    at = -1;
    count.textContent = search.value.trim() ? `${found.length} found` : "";
  }
  function next() {
    const found = matches();
    if (!found.length) return;
    at = (at + 1) % found.length;
    pictures.open(svg(), group => group.classList.contains("opened") || group.contains(found[at]));
    for (const item of svg().querySelectorAll(".current")) item.classList.remove("current");
    found[at].classList.add("current");
    found[at].scrollIntoView({block: "center", inline: "center"});
    count.textContent = `${at + 1} of ${found.length}`;
  }
  choice.onchange = draw;
  before.onclick = () => { isBefore = !isBefore; draw(); };
  search.oninput = mark;
  search.onkeydown = event => { if (event.key === "Enter") next(); };
  for (const [text, does] of [
    ["Next", next], ["+", () => resize(scale * 1.25)], ["−", () => resize(scale / 1.25)],
    ["Open all", () => turn(true)], ["Close all", () => turn(false)],
  ]) make(tools, "button", {type: "button", textContent: text, onclick: does});
  draw();
}

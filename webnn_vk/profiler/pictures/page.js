// What the pages share. On hovering, one text for whatever has one:
const tip = find("tip");
let lit = null;
function show(target, x, y) {
  if (lit) lit.classList.remove("lit");
  lit = target;
  if (!target) { tip.style.visibility = "hidden"; return; }
  target.classList.add("lit");
  tip.textContent = target.getAttribute("data-tip");
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(x + 12, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 16 + box.height > innerHeight ? Math.max(8, y - box.height - 10) : y + 16) + "px";
  tip.style.visibility = "visible";
}
const hovered = event => show(event.target.closest ? event.target.closest("[data-tip]") : null,
  event.clientX, event.clientY);
document.addEventListener("pointermove", hovered);
document.addEventListener("pointerdown", hovered);
document.addEventListener("scroll", () => show(null), true);

// -- theme: the system's until it is chosen
const dark = matchMedia("(prefers-color-scheme: dark)");
function theme(name) {
  document.documentElement.dataset.theme = name;
  find("theme").textContent = name === "dark" ? "Light" : "Dark";
}
theme(location.hash === "#dark" || location.hash === "#light" ? location.hash.slice(1)
  : dark.matches ? "dark" : "light");
dark.addEventListener("change", event => theme(event.matches ? "dark" : "light"));
find("theme").onclick = () =>
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

// Puts the page together: pointer, keys, and the view that follows them.
const timeline = { view, drawnMs: 0, band: null, itemOf, xOf, rows };
window.timeline = timeline;
const plot = canvases.plot, overview = canvases.overview;
let drag = null;

function repaint() {
  drawPanel();
  drawLegend();
  view.room = 0;
  draw();
}

function toggleTheme() {
  setTheme(theme.name === "dark" ? "light" : "dark");
  repaint();
}

function toggleSide() {
  document.body.classList.toggle("bare");
  redraw();
}

function unpin() {
  chosen = null;
  tip.hidden = true;
  document.querySelectorAll("button.wait.chosen").forEach((one) => one.classList.remove("chosen"));
  redraw();
}

function choose(item, x, y) {
  unpin();
  chosen = item;
  if (item) show(item, x, y, true);
}

// Go to a request: its wait and its turn in the middle, pinned.
function visit(request, slice) {
  const item = itemOf(request, slice), place = waitOf.get(request);
  if (!item) return;
  const waited = place !== undefined, from = waited ? raw.waits.from[place] : item.spans.from(item.place);
  const to = waited && raw.waits.to[place] >= 0 ? raw.waits.to[place] : item.spans.to(item.place);
  const margin = Math.max((to - from) * 0.6, 50);
  rowsBox.scrollTop = Math.max(item.row.y - rowsBox.clientHeight / 2, 0);
  look(from - margin, to + margin);
  draw();
  const box = plot.getBoundingClientRect();
  choose(item, box.left + Math.max(xOf(item.spans.from(item.place)), view.gutter), box.top + item.row.y - rowsBox.scrollTop + item.row.height - 12);
  document.querySelectorAll("button.wait").forEach((one) => one.classList.toggle("chosen", one.dataset.request === request));
}

function step(forward) {
  const buttons = [...document.querySelectorAll("button.wait")];
  const now = buttons.findIndex((one) => one.classList.contains("chosen"));
  buttons[(now + (forward ? 1 : buttons.length - 1) + (now < 0 && !forward ? 1 : 0)) % buttons.length]?.click();
}

// ---------------------------------------------------------------- pointer

const spot = (event, element) => { const box = element.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };

plot.addEventListener("wheel", (event) => {
  const [x] = spot(event, plot);
  if (x < view.gutter && !event.ctrlKey) return;      // over the names, rows scroll
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / plotWidth());
  else zoom(Math.exp(Math.max(Math.min(event.deltaY, 300), -300) * 0.0025), x);
}, { passive: false });

plot.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  const [x, y] = spot(event, plot);
  drag = { x, y, from: view.from, to: view.to, moved: false, band: event.shiftKey };
  plot.setPointerCapture(event.pointerId);
});

plot.addEventListener("pointermove", (event) => {
  const [x, y] = spot(event, plot);
  if (drag) return dragged(x, y);
  pointed = itemAt(x, y);
  plot.classList.toggle("pointing", Boolean(pointed));
  if (!chosen) show(pointed, event.clientX, event.clientY);
  return redraw();
});

function dragged(x, y) {
  drag.moved ||= Math.abs(x - drag.x) > 3 || Math.abs(y - drag.y) > 3;
  if (!drag.moved) return;
  if (drag.band) {
    timeline.band = [drag.x, x];
    redraw();
    return;
  }
  plot.classList.add("dragging");
  if (!chosen) tip.hidden = true;
  const shift = (drag.x - x) / plotWidth() * (drag.to - drag.from);
  const start = Math.min(Math.max(drag.from + shift, 0), END - (drag.to - drag.from));
  look(start, start + drag.to - drag.from);
}

plot.addEventListener("pointerup", (event) => {
  const [x, y] = spot(event, plot), was = drag;
  drag = timeline.band = null;
  plot.classList.remove("dragging");
  if (was?.band && was.moved) look(Math.min(timeOf(was.x), timeOf(x)), Math.max(timeOf(was.x), timeOf(x)));
  else if (was && !was.moved) choose(itemAt(x, y), event.clientX, event.clientY);
});

plot.addEventListener("pointercancel", () => { drag = timeline.band = null; plot.classList.remove("dragging"); redraw(); });
plot.addEventListener("pointerleave", () => { pointed = null; if (!chosen) tip.hidden = true; redraw(); });
plot.addEventListener("dblclick", () => { unpin(); look(0, END); });

// The strip at the top: a drag chooses a part, a click goes there.
const overall = (x) => Math.min(Math.max((x - view.gutter) / plotWidth(), 0), 1) * END;
let chosenFrom = null;
overview.addEventListener("pointerdown", (event) => { chosenFrom = spot(event, overview)[0]; overview.setPointerCapture(event.pointerId); });
overview.addEventListener("pointermove", (event) => {
  const x = spot(event, overview)[0];
  if (chosenFrom !== null && Math.abs(x - chosenFrom) > 4) look(Math.min(overall(x), overall(chosenFrom)), Math.max(overall(x), overall(chosenFrom)));
});
overview.addEventListener("pointerup", (event) => {
  const x = spot(event, overview)[0], half = (view.to - view.from) / 2;
  if (chosenFrom !== null && Math.abs(x - chosenFrom) <= 4) look(overall(x) - half, overall(x) + half);
  chosenFrom = null;
});

// ---------------------------------------------------------------- keys and buttons

const help = document.getElementById("help");
const actions = {
  "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": () => look(0, END), Home: () => look(0, END),
  ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Escape: unpin, t: toggleTheme, r: toggleSide,
  n: () => step(true), p: () => step(false), "?": () => help.showModal(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open || !(event.key in actions)) return;
  event.preventDefault();
  actions[event.key]();
});
for (const [id, key] of Object.entries({ in: "+", out: "-", fit: "0", theme: "t", side: "r", keys: "?" }))
  document.getElementById(id).addEventListener("click", actions[key]);

rowsBox.addEventListener("scroll", redraw);
new ResizeObserver(redraw).observe(document.getElementById("chart"));
const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => { setTheme(dark.matches ? "dark" : "light"); repaint(); });

document.getElementById("pool").textContent = raw.pool;
document.title = `${raw.pool}: slicelock timeline`;
setTheme(dark.matches ? "dark" : "light");
repaint();
timeline.openedMs = performance.now();
document.documentElement.dataset.ready = "1";

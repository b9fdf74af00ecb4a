// Draws the visible part. What is narrower than a pixel is merged, so that the cost follows the width of the page.
const canvases = Object.fromEntries(["overview", "axis", "plot"].map((name) => [name, document.getElementById(name)]));
const rowsBox = document.getElementById("rows");
const HAND_OVERS = 300;    // more lines than this, or than one for some pixels, would be a grey area
const APART = 3;
const WIDE = 30;           // pixels that a word needs
let pending = false, chosen = null, pointed = null;

function pen(name, height) {
  const canvas = canvases[name], ratio = window.devicePixelRatio || 1;
  const width = Math.round(view.width * ratio), tall = Math.round(height * ratio);
  if (canvas.width !== width || canvas.height !== tall) {
    canvas.width = width;
    canvas.height = tall;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, view.width, height);
  context.font = '11.5px system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif';
  context.textBaseline = "middle";
  return context;
}

function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

function draw() {
  const begun = performance.now();
  layout();
  drawOverview(pen("overview", 46));
  drawAxis(pen("axis", 26));
  drawRows(pen("plot", rowsBox.clientHeight));
  document.getElementById("range").textContent =
    `${day(view.from)} ${clock(view.from)} to ${day(view.from) === day(view.to) ? "" : day(view.to) + " "}${clock(view.to)} · ${duration(view.to - view.from)}`;
  timeline.drawnMs = performance.now() - begun;
}

function layout() {
  const width = document.getElementById("chart").clientWidth, room = rowsBox.clientHeight;
  if (width === view.width && room === view.room) return;
  const gutter = width < NARROW ? NAMES_WIDTH / 2 : NAMES_WIDTH;
  Object.assign(view, { width, room, gutter });
  document.documentElement.style.setProperty("--names", `${gutter}px`);
  document.getElementById("tall").style.height = `${arrange(room)}px`;
  drawLabels();
}

// ---------------------------------------------------------------- spans

// Fills spans of a row. `look(place)` gives the colour; `wide(place, x, width)` may add to one that is wide.
function fill(context, spans, y, height, look, wide) {
  let column = -1, covered = 0, colours = new Map();
  const flush = () => {
    if (column < 0) return;
    let best = null;
    for (const [colour, width] of colours) if (best === null || width > colours.get(best)) best = colour;
    context.globalAlpha = Math.min(Math.max(covered, 0.3), 1);
    context.fillStyle = best;
    context.fillRect(column, y, 1, height);
    context.globalAlpha = 1;
    column = -1;
  };
  for (const place of spans.within(view.from, view.to)) {
    const left = Math.max(xOf(spans.from(place)), view.gutter), right = Math.min(xOf(spans.to(place)), view.width - RIGHT);
    const width = right - left, colour = look(place);
    if (width >= 1.5) {
      flush();
      context.fillStyle = colour;
      context.fillRect(left, y, width, height);
      if (wide && width >= 3) wide(place, left, width);
      continue;
    }
    const at = Math.floor(left);
    if (at !== column) { flush(); column = at; covered = 0; colours = new Map(); }
    covered += Math.max(width, 0.05);
    colours.set(colour, (colours.get(colour) || 0) + Math.max(width, 0.05));
  }
  flush();
}

// A word in a span, cut to what fits; nothing where less than three letters would.
function word(context, text, x, y, width, colour) {
  if (width < WIDE || !text) return;
  const room = width - 11;
  let shown = text;
  if (context.measureText(text).width > room) {
    let letters = text.length;
    while (letters > 2 && context.measureText(`${text.slice(0, letters)}…`).width > room) letters--;
    if (letters < 3) return;
    shown = `${text.slice(0, letters)}…`;
  }
  context.fillStyle = colour;
  context.fillText(shown, x + 6, y + 0.5);
}

const onColour = () => (theme.name === "dark" ? "#0b1016" : "#ffffff");

// A gap of a pixel between neighbours, so that turns of one job stay apart.
function edge(context, x, y, width, height) {
  context.fillStyle = theme.ink.back;
  context.fillRect(x + width - 1, y, 1, height);
}

const painters = {
  slice(context, row, y) {
    const [turns, switches, conditions] = row.layers, at = y + row.inset;
    fill(context, switches, at, row.bar, () => hatch(context));
    fill(context, turns, at, row.bar, (place) => jobColour(turns.text("job", place)), (place, x, width) => {
      edge(context, x, at, width, row.bar);
      word(context, turns.text("job", place), x, at + row.bar / 2, width, onColour());
    });
    fill(context, conditions, y + 2, 4, (place) => conditionColour(conditions.text("what", place)));
  },
  job(context, row, y) {
    const [waits, switches, turns] = row.layers, at = y + row.inset, middle = y + row.height / 2;
    fill(context, waits, middle - 1, 2, () => theme.ink.wait, (place, x, width) => {
      const complete = waits.columns.complete[place];
      if (complete < 0 || xOf(complete) - x < 1) return;
      context.fillStyle = theme.ink.gather;
      context.fillRect(x, middle - 1, Math.min(xOf(complete) - x, width), 2);
    });
    fill(context, switches, at + row.bar / 6, row.bar * 2 / 3, () => hatch(context));
    fill(context, turns, at, row.bar, (place) => phaseColour(turns.text("phase", place)), (place, x, width) => {
      edge(context, x, at, width, row.bar);
      word(context, turns.text("phase", place), x, middle, width, onColour());
    });
  },
};

function conditionColour(what) {
  return { blocked: theme.ink.blocked, draining: theme.ink.switch, kept: theme.ink.accent }[what] || theme.ink.muted;
}

// ---------------------------------------------------------------- the three canvases

function drawRows(context) {
  const top = rowsBox.scrollTop, height = rowsBox.clientHeight;
  const { found } = ticks();
  for (const group of groups) {
    context.fillStyle = theme.ink.row;
    context.fillRect(0, group.y - top - 4, view.width, group.height + 8);
  }
  context.fillStyle = theme.ink.grid;
  for (const at of found) context.fillRect(Math.round(xOf(at)), 0, 1, height);
  for (const mark of raw.marks) drawMark(context, mark, height);
  for (const row of rows)
    if (row.y + row.height >= top && row.y <= top + height) painters[row.kind](context, row, row.y - top);
  for (const group of groups)
    if (group.y + group.height >= top && group.y <= top + height) drawHandOvers(context, group, top);
  outline(context, pointed, theme.ink.text, top);
  outline(context, chosen, theme.ink.accent, top);
  if (timeline.band) {
    const [from, to] = timeline.band;
    context.fillStyle = theme.ink.accent;
    context.globalAlpha = 0.15;
    context.fillRect(Math.min(from, to), 0, Math.abs(to - from), height);
    context.globalAlpha = 1;
  }
}

function drawMark(context, [at, type], height) {
  const x = Math.round(xOf(at));
  if (x < view.gutter || x > view.width) return;
  context.fillStyle = type === "epoch" || type === "gap" || type === "silent" ? theme.ink.blocked : theme.ink.faint;
  context.globalAlpha = 0.5;
  for (let y = 0; y < height; y += 6) context.fillRect(x, y, 1, 3);
  context.globalAlpha = 1;
}

// From the end of a job's turn to the beginning of the next job's.
function drawHandOvers(context, group, top) {
  const rowOf = new Map(group.rows.map((row) => [row.name, row]));
  const visible = [], most = Math.min(HAND_OVERS, plotWidth() / APART);
  let before = -1;
  for (const place of group.turns.within(view.from, view.to)) {
    if (before >= 0 && group.turns.text("job", before) !== group.turns.text("job", place)) visible.push([before, place]);
    if (visible.length > most) return;
    before = place;
  }
  context.strokeStyle = theme.ink.hand;
  context.globalAlpha = visible.length > most / 4 ? 0.3 : 0.6;
  context.lineWidth = 1.2;
  context.beginPath();
  for (const [left, right] of visible) {
    const a = rowOf.get(group.turns.text("job", left)), b = rowOf.get(group.turns.text("job", right));
    const down = b.y > a.y ? 1 : -1;
    const x1 = xOf(group.turns.to(left)), x2 = xOf(group.turns.from(right));
    const y1 = a.y - top + a.height / 2 + down * a.bar / 2, y2 = b.y - top + b.height / 2 - down * b.bar / 2;
    const bend = Math.max(Math.abs(y2 - y1) * 0.5, 5) * down;
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    context.moveTo(x2 - 3, y2 - 4 * down);
    context.lineTo(x2, y2);
    context.lineTo(x2 + 3, y2 - 4 * down);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function outline(context, item, colour, top) {
  if (!item) return;
  const left = Math.max(xOf(item.spans.from(item.place)), view.gutter), right = Math.min(xOf(item.spans.to(item.place)), view.width - RIGHT);
  if (right < view.gutter || left > view.width - RIGHT) return;
  const thin = { condition: [1, 6], wait: [item.row.height / 2 - 4, 8] }[item.spans.kind];
  const [shift, height] = thin || [item.row.inset, item.row.bar];
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.strokeRect(left - 1, item.row.y - top + shift - 1, Math.max(right - left, 1) + 2, height + 2);
}

function drawAxis(context) {
  const { step, found } = ticks();
  context.fillStyle = theme.ink.muted;
  context.textAlign = "center";
  for (const at of found) {
    const x = xOf(at);
    if (x > view.gutter + 20 && x < view.width - 24) context.fillText(clock(at, step), x, 14);
    context.fillRect(Math.round(x), 22, 1, 4);
  }
  context.textAlign = "left";
  context.fillText(day(view.from), 18, 14);
}

// The whole time, every slice as a stripe, and the part that is visible.
function drawOverview(context) {
  const { from, to } = view, stripe = Math.max(Math.min(30 / Math.max(groups.length, 1), 12), 2);
  const left = xOf(from), right = xOf(to);
  view.from = 0;
  view.to = END;
  const a = xOf(from), b = xOf(to);
  groups.slice(0, 15).forEach((group, number) => {
    fill(context, group.turns, 8 + number * stripe, stripe - 1, (place) => jobColour(group.turns.text("job", place)));
  });
  view.from = from;
  view.to = to;
  context.fillStyle = theme.ink.back;
  context.globalAlpha = 0.72;
  context.fillRect(left, 0, a - left, 46);
  context.fillRect(b, 0, right - b, 46);
  context.globalAlpha = 1;
  context.strokeStyle = theme.ink.accent;
  context.lineWidth = 1.5;
  context.strokeRect(a, 4, Math.max(b - a, 2), 38);
}

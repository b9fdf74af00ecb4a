// What is under the pointer, and what there is to say about it.
const tip = document.getElementById("tip");
const NEAR = 4;             // pixels beside a thin span that still mean it

function itemAt(x, y) {
  const at = y + rowsBox.scrollTop;
  const row = rows.find((one) => at >= one.y && at < one.y + one.height);
  if (!row || x < view.gutter) return null;
  const slack = (view.to - view.from) / plotWidth() * NEAR, time = timeOf(x);
  const layers = row.kind === "slice" && at - row.y < 7 ? [row.layers[2], ...row.layers.slice(0, 2)] : [...row.layers].reverse();
  let best = null, least = Infinity;
  for (const spans of layers) {
    for (const place of spans.within(time - slack, time + slack)) {
      const off = Math.max(spans.from(place) - time, time - spans.to(place), 0);
      if (off < least) { least = off; best = { row, spans, place }; }
    }
    if (least === 0) break;
  }
  return best;
}

// A request's turn on some slice, else its wait.
function itemOf(request, slice) {
  for (const kind of ["turn", "wait"])
    for (const row of rows) {
      if (row.kind !== "job" || (slice && row.slice.name !== slice)) continue;
      const spans = row.layers.find((one) => one.kind === kind);
      const place = spans.places.find((one) => spans.text("request", one) === request);
      if (place !== undefined) return { row, spans, place };
    }
  return null;
}

// ---------------------------------------------------------------- facts

const describe = {
  turn(spans, place, row) {
    const request = spans.text("request", place), wait = waitOf.get(request);
    const facts = [["slice", row.slice.name], ["held", length(spans, place)], ["from", times(spans, place)]];
    if (wait !== undefined) facts.push(["waited", duration(raw.waits.to[wait] - raw.waits.from[wait])]);
    const made = switchOf.get(`${row.slice.name} ${request}`);
    facts.push(["request", request], ["lane", spans.text("lane", place)], ["ended", spans.text("outcome", place) || "goes on"]);
    if (made !== undefined) facts.push(...switchFacts(row.slice.switches, made));
    return [`${spans.text("job", place)} ${spans.text("phase", place)}`, facts];
  },
  wait(spans, place) {
    const { from, complete, granted } = spans.columns;
    const facts = [["for", NAMES[spans.columns.slices[place]]], ["waited", length(spans, place)], ["from", times(spans, place)]];
    if (complete[place] - from[place] > 0) facts.push(["gathering", duration(complete[place] - from[place])]);
    if (granted[place] >= 0) facts.push(["switching", duration(spans.to(place) - granted[place])]);
    for (const why of spans.columns.requeued[place]) facts.push(["put back", NAMES[why]]);
    facts.push(...causes(spans.text("request", place)), ["request", spans.text("request", place)]);
    const outcome = spans.text("outcome", place);
    return [`${spans.text("job", place)} waits`, [...facts, ["ended", outcome === "held" ? "with its turn" : outcome || "goes on"]]];
  },
  switch(spans, place, row) {
    const left = spans.text("left", place);
    return [`Switch ${left ? `${left} → ` : "to "}${spans.text("job", place)}`, [
      ["slice", row.slice.name], ["took", length(spans, place)], ["from", times(spans, place)],
      ...switchFacts(spans.columns, place), ["ended", spans.text("outcome", place) || "goes on"],
    ]];
  },
  condition(spans, place, row) {
    const facts = [["for", length(spans, place)], ["from", times(spans, place)]];
    for (const name of ["node", "reason"]) if (spans.text(name, place)) facts.push([name, spans.text(name, place)]);
    return [`${row.slice.name} ${spans.text("what", place)}`, facts];
  },
};

const length = (spans, place) => duration(spans.to(place) - spans.from(place));
const times = (spans, place) => `${clock(spans.from(place), 1)} to ${clock(spans.to(place), 1)}`;

function causes(request) {
  const long = raw.report.slices.flatMap((slice) => slice.longest_waits).find((one) => one.request === request);
  return long ? Object.entries(long.causes).map(([why, seconds]) => [duration(seconds * 1000), why]) : [];
}

function switchFacts(columns, place) {
  if (!columns.bytes[place] && !columns.nodes[place].length) return [["moved", "nothing"]];
  const facts = [["moved", size(columns.bytes[place])]];
  for (const [node, bytes, seconds, reason, steps] of columns.nodes[place]) {
    facts.push([NAMES[node], `${size(bytes)} in ${duration(seconds * 1000)}${NAMES[reason] ? ` · ${NAMES[reason]}` : ""}`]);
    for (const [step, run, way, moved, took] of steps)
      facts.push([`· ${NAMES[step]}`, `${NAMES[run]} by ${NAMES[way]}: ${moved ? `${size(moved)} at ${(moved / took / 1e9).toFixed(1)} GB/s, ` : ""}${duration(took * 1000)}`]);
  }
  return facts;
}

// ---------------------------------------------------------------- the box

function show(item, x, y, pinned = false) {
  if (!item) { tip.hidden = true; return; }
  const [title, facts] = describe[item.spans.kind](item.spans, item.place, item.row);
  const head = document.createElement("h3"), list = document.createElement("dl");
  head.textContent = title.trim();
  for (const [name, value] of facts) {
    if (value === "") continue;
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name;
    dd.textContent = value;
    list.append(dt, dd);
  }
  tip.replaceChildren(head, list);
  tip.classList.toggle("pinned", pinned);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const right = canvases.plot.getBoundingClientRect().right;      // the figures stay free
  tip.style.left = `${Math.max(8, Math.min(x + 14, right - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? Math.max(8, y - box.height - 12) : y + 18}px`;
}

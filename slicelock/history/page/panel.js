// The figures beside the timeline, the legend, and the names of rows. Every name is put in as text.
function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function chip(colour, className = "chip") {
  const element = make("i", "", className);
  if (colour) element.style.background = colour;
  return element;
}

function tableOf(heads, lines) {
  const table = make("table"), head = make("tr");
  heads.forEach((text) => head.append(make("th", text)));
  table.append(head);
  for (const cells of lines) {
    const line = make("tr");
    for (const cell of cells) {
      const box = make("td");
      box.append(cell);
      line.append(box);
    }
    table.append(line);
  }
  return table;
}

function named(job) {
  const box = document.createDocumentFragment();
  box.append(chip(jobColour(job)), job);
  return box;
}

function drawPanel() {
  const { total, jobs, slices, complete, events } = raw.report, parts = [];
  const gain = total.saved_gpu_hours;
  parts.push(make("h2", "Was it worth it"));
  parts.push(make("p", jobs.length ? `${gain < 0 ? "−" : ""}${hours(Math.abs(gain))} GPU-hours` : "No turn yet", `verdict ${gain > 0 ? "good" : gain < 0 ? "bad" : ""}`));
  if (jobs.length) parts.push(make("p", `${gain < 0 ? "lost" : "saved"} by sharing, ${percent(Math.abs(total.saved_share))}: ${hours(total.gpu_hours_shared)} instead of ${hours(total.gpu_hours_alone)} one after the other`, "sub"));
  if (!complete) parts.push(make("p", "Events of this time are missing, so the figures are too low.", "warning"));
  if (jobs.length) parts.push(make("h2", "Jobs"), jobTable(jobs), make("h2", "Time"), timeTable(jobs));
  if (slices.length) parts.push(make("h2", "Slices"), ...slices.map(sliceFigures));
  const waits = longest();
  if (waits.length) parts.push(make("h2", "Longest waits"), ...waits.map(waitButton));
  parts.push(make("p", `${events} events. Definitions: docs/reference/report.md`, "sub"));
  document.getElementById("report").replaceChildren(...parts);
}

function jobTable(jobs) {
  return tableOf(["", "turns", "waited p50", "p95", "saved"], jobs.map((one) => {
    const colour = one.saved_gpu_hours > 0 ? "good" : one.saved_gpu_hours < 0 ? "bad" : "";
    return [named(one.job), String(one.turns), duration(one.wait_p50_s * 1000), duration(one.wait_p95_s * 1000), make("span", percent(one.saved_share), colour)];
  }));
}

function timeTable(jobs) {
  return tableOf(["", "held", "switches", "alone", "now"], jobs.map((one) => [
    named(one.job), duration(one.held_s * 1000), duration(one.switch_s * 1000), duration(one.alone_s * 1000), duration(one.now_s * 1000),
  ]));
}

function sliceFigures(one) {
  const box = make("div", "", "slicefigures"), stack = make("div", "", "stack");
  const parts = [...Object.entries(one.phases).map(([phase, share]) => [phase, share, phaseColour(phase === "(no phase)" ? "" : phase)]),
    ["switching", one.switching_s * 1000 / END, theme.ink.switch]];
  for (const [name, share, colour] of parts) {
    const piece = chip(colour, "");
    piece.style.width = `${share * 100}%`;
    piece.title = `${name} ${percent(share)}`;
    stack.append(piece);
  }
  box.append(make("b", one.slice), ` in use ${percent(one.duty)}`, stack);
  const idle = Object.entries(one.idle_waiting).map(([why, seconds]) => `${why} ${duration(seconds * 1000)}`).join(", ");
  const facts = [
    Object.entries(one.phases).map(([phase, share]) => `${phase} ${percent(share)}`).join(", "),
    one.switches ? `${one.switches} switch${one.switches === 1 ? "" : "es"}, ${duration(one.switching_s * 1000)}, ${size(one.bytes)}` : "no switch",
    one.utilisation === null ? "" : `devices ${Math.round(one.utilisation)} % busy`,
    idle ? `idle while somebody waited: ${idle}` : "",
  ].filter(Boolean);
  for (const text of facts) box.append(make("div", text, "facts"));
  return box;
}

function longest() {
  const found = new Map();
  for (const slice of raw.report.slices) for (const one of slice.longest_waits) found.set(one.request, { ...one, slice: slice.slice });
  return [...found.values()].sort((a, b) => b.seconds - a.seconds).slice(0, 6);
}

function waitButton(one) {
  const button = make("button", "", "wait"), [why, seconds] = Object.entries(one.causes)[0] || ["", 0];
  button.append(make("em", duration(one.seconds * 1000)), named(one.job), make("small", `${why} ${duration(seconds * 1000)} · ${one.request}`));
  button.dataset.request = one.request;
  button.addEventListener("click", () => visit(one.request, one.slice));
  return button;
}

function drawLegend() {
  const legend = document.getElementById("legend"), parts = [];
  const entry = (mark, text) => { const box = make("span"); box.append(mark, text); parts.push(box); };
  for (const phase of phaseNames) entry(chip(phaseColour(phase)), phase || "no phase");
  entry(chip("", "chip hatch"), "switch");
  entry(chip(theme.ink.wait, "chip bar"), "waits");
  entry(chip(theme.ink.gather, "chip bar"), "gathers its members");
  entry(chip(theme.ink.blocked, "chip bar"), "blocked");
  if (raw.slices.some((slice) => slice.conditions.from.length)) entry(chip(theme.ink.muted, "chip bar"), "settling");
  legend.replaceChildren(...parts);
}

function drawLabels() {
  const figures = new Map(raw.report.slices.map((one) => [one.slice, one]));
  const labels = rows.map((row) => {
    const label = make("div", "", `label ${row.kind}`);
    label.style.top = `${row.y}px`;
    label.style.lineHeight = `${row.height}px`;
    label.title = row.name;
    if (row.kind === "job") label.append(named(row.name));
    else label.append(row.name, " ", make("small", percent(figures.get(row.name)?.duty || 0)));
    return label;
  });
  document.getElementById("labels").replaceChildren(...labels);
}

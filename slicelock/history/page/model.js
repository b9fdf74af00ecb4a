// What the page shows: rows of spans, from the columns in the document. Times are ms after the beginning.
const raw = JSON.parse(document.getElementById("data").textContent);
const NAMES = raw.names;
const END = Math.max(raw.length_ms, 1);

// Spans in order of their beginning. `longest` bounds how far back one may begin that is still visible.
class Spans {
  constructor(columns, kind, places) {
    this.kind = kind;
    this.columns = columns;
    this.places = places || Int32Array.from(columns.from, (_, place) => place);
    this.places.sort((a, b) => columns.from[a] - columns.from[b]);
    this.longest = 0;
    for (const place of this.places) this.longest = Math.max(this.longest, this.to(place) - columns.from[place]);
  }
  get length() { return this.places.length; }
  from(place) { return this.columns.from[place]; }
  to(place) { const to = this.columns.to[place]; return to < 0 ? END : to; }
  text(name, place) { return NAMES[this.columns[name][place]] || ""; }
  // The first number whose span may reach to a time.
  first(time) {
    let low = 0, high = this.places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.columns.from[this.places[middle]] < time - this.longest) low = middle + 1; else high = middle;
    }
    return low;
  }
  *within(begin, end) {
    for (let number = this.first(begin); number < this.places.length; number++) {
      const place = this.places[number];
      if (this.from(place) > end) return;
      if (this.to(place) >= begin) yield place;
    }
  }
}

// The heights of rows; they grow where there is room.
const ROW = { slice: 30, job: 24, gap: 14, top: 8 };
const rows = [];
const groups = [];
const jobNames = [];
const waitOf = new Map();          // request -> place in the waits
const switchOf = new Map();        // slice and request -> place in the slice's switches

function byJob(columns, keep) {
  const found = new Map();
  columns.from.forEach((_, place) => {
    if (keep && !keep(place)) return;
    const job = NAMES[columns.job[place]];
    if (!found.has(job)) found.set(job, []);
    found.get(job).push(place);
  });
  return found;
}

function build() {
  raw.waits.request.forEach((request, place) => waitOf.set(NAMES[request], place));
  const everyJob = new Set(raw.report.jobs.map((one) => one.job));
  for (const slice of raw.slices) {
    const turns = byJob(slice.turns), switches = byJob(slice.switches);
    const slicesOfWait = new Map();
    const waits = byJob(raw.waits, (place) => {
      const text = NAMES[raw.waits.slices[place]];
      if (!slicesOfWait.has(text)) slicesOfWait.set(text, text.split(" ").includes(slice.name));
      return slicesOfWait.get(text);
    });
    slice.switches.request.forEach((request, place) => switchOf.set(`${slice.name} ${NAMES[request]}`, place));
    const names = [...new Set([...turns.keys(), ...waits.keys(), ...switches.keys()])].sort();
    const group = { slice, rows: [], turns: new Spans(slice.turns, "turn") };
    group.rows.push({ kind: "slice", slice, name: slice.name, layers: [
      group.turns, new Spans(slice.switches, "switch"), new Spans(slice.conditions, "condition"),
    ] });
    for (const job of names) {
      everyJob.add(job);
      const pick = (columns, found, kind) => new Spans(columns, kind, Int32Array.from(found.get(job) || []));
      group.rows.push({ kind: "job", slice, name: job, layers: [
        pick(raw.waits, waits, "wait"), pick(slice.switches, switches, "switch"), pick(slice.turns, turns, "turn"),
      ] });
    }
    groups.push(group);
    rows.push(...group.rows);
  }
  jobNames.push(...[...everyJob].sort());
}
build();

// Puts the rows under each other, up to twice as tall if `room` allows; the height of all of them.
function arrange(room) {
  const natural = groups.reduce((sum, group) => sum + ROW.slice + ROW.job * (group.rows.length - 1) + ROW.gap, ROW.top);
  const grow = Math.min(Math.max(room / natural, 1), 2.1);
  let y = ROW.top;
  for (const group of groups) {
    group.y = y;
    for (const row of group.rows) {
      row.y = y;
      row.height = Math.floor(ROW[row.kind] * grow);
      row.bar = row.height - (row.kind === "slice" ? 12 : 6);      // the height of what is drawn in it
      row.inset = row.kind === "slice" ? 7 : 3;
      y += row.height;
    }
    group.height = y - group.y;
    y += ROW.gap;
  }
  return y;
}

// ---------------------------------------------------------------- numbers for people

function duration(ms) {
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  if (m < 60) return `${m}m ${two(s % 60)}s`;
  return h < 24 ? `${h}h ${two(m % 60)}m` : `${d}d ${two(h % 24)}h`;
}

function size(bytes) {
  for (const [limit, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (bytes >= limit) return `${Number((bytes / limit).toPrecision(3))} ${unit}`;
  return `${bytes} B`;
}

const percent = (share) => `${Math.round(share * 100)} %`.replace("-", "−");
const hours = (value) => `${Number(value.toPrecision(3))}`;

function clock(ms, step = 1000) {
  const at = new Date(raw.begin_ms + ms);
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (step >= 86400000) return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  if (step >= 60000) return time;
  const seconds = `${time}:${two(at.getSeconds())}`;
  return step >= 1000 ? seconds : `${seconds}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

function day(ms) { return clock(ms, 86400000); }

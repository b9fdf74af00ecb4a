// Which part of the time is visible, and where it is on the page.
const RIGHT = 14, SHORTEST = 4;
const NAMES_WIDTH = 190, NARROW = 600;     // of names beside the rows; pages below get half
const view = { from: 0, to: END, width: 0, room: 0, gutter: NAMES_WIDTH };

const plotWidth = () => Math.max(view.width - view.gutter - RIGHT, 10);
const xOf = (time) => view.gutter + (time - view.from) / (view.to - view.from) * plotWidth();
const timeOf = (x) => view.from + (x - view.gutter) / plotWidth() * (view.to - view.from);

// Show from one time to another: at least some ms, and nothing outside of what there is.
function look(from, to) {
  const length = Math.min(Math.max(to - from, Math.min(SHORTEST, END)), END);
  const start = Math.min(Math.max((from + to - length) / 2, 0), END - length);
  view.from = start;
  view.to = start + length;
  redraw();
}

function zoom(factor, x = view.gutter + plotWidth() / 2) {
  const at = Math.min(Math.max(timeOf(x), view.from), view.to);
  look(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

function move(share) {
  const shift = Math.min(Math.max((view.to - view.from) * share, -view.from), END - view.to);
  look(view.from + shift, view.to + shift);
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 1.2e5, 3e5, 6e5, 9e5, 1.8e6,
  3.6e6, 7.2e6, 1.08e7, 2.16e7, 4.32e7, 8.64e7, 1.728e8, 6.048e8];

// Times for the axis, at full seconds, minutes and hours of the local clock.
function ticks() {
  const most = Math.max(Math.floor(plotWidth() / 92), 2);
  const step = STEPS.find((one) => (view.to - view.from) / one <= most) || STEPS.at(-1);
  const zone = new Date(raw.begin_ms).getTimezoneOffset() * 60000;
  const first = Math.ceil((raw.begin_ms + view.from - zone) / step) * step + zone - raw.begin_ms;
  const found = [];
  for (let at = first; at <= view.to; at += step) found.push(at);
  return { step, found };
}

// Colours, for light and dark pages. Phases and jobs have their own; a phase that nobody knows gets one of the rest.
const PHASES = {
  light: { generate: "#2f7ed8", train: "#1f9d6b", sync: "#8457e0", reward: "#cf4f99", eval: "#1298ad", init: "#66768a", save: "#96702a" },
  dark: { generate: "#4f9bf0", train: "#38b883", sync: "#a283f2", reward: "#e673b3", eval: "#35b6c9", init: "#8796a9", save: "#c09a50" },
};
const MORE = {
  light: ["#c2571a", "#4a8f2c", "#3d6bc4", "#a8455f", "#6a7f1d", "#7a5bb0", "#2a8c86", "#b5651d"],
  dark: ["#e58a4e", "#7cc05c", "#7ba1ee", "#dc7f97", "#a9be55", "#b09ae0", "#62bdb6", "#dd9a57"],
};
const JOBS = {
  light: ["#1f6feb", "#d4572a", "#0f8f7f", "#9b51c9", "#b8860b", "#d0417e", "#5a8f1f", "#5b6f8a"],
  dark: ["#58a6ff", "#f0804f", "#3cc4b0", "#c38df0", "#e0b13e", "#f27fb0", "#94cb53", "#9db0c9"],
};
const NO_PHASE = { light: "#7c8798", dark: "#8b97a8" };

const theme = { name: "light", ink: {} };
const phaseNames = [...new Set(raw.slices.flatMap((slice) => [...new Set(slice.turns.phase)]).map((place) => NAMES[place] || ""))].sort();
const unknownPhases = phaseNames.filter((phase) => phase && !(phase in PHASES.light));
const jobPlaces = new Map(jobNames.map((job, place) => [job, place]));

function phaseColour(phase) {
  if (!phase) return NO_PHASE[theme.name];
  return PHASES[theme.name][phase] || MORE[theme.name][unknownPhases.indexOf(phase) % MORE.light.length];
}

function jobColour(job) {
  const colours = JOBS[theme.name];
  return colours[(jobPlaces.get(job) ?? 0) % colours.length];
}

function setTheme(name) {
  theme.name = name;
  document.documentElement.dataset.theme = name;
  const style = getComputedStyle(document.documentElement);
  for (const word of ["back", "text", "muted", "faint", "line", "grid", "row", "accent", "switch", "blocked", "wait", "gather", "hand"])
    theme.ink[word] = style.getPropertyValue(`--${word}`).trim();
  theme.hatch = null;
}

// The pattern of a switch: stripes that stay one device pixel sharp.
function hatch(context) {
  if (theme.hatch) return theme.hatch;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = theme.ink.switch;
  pen.globalAlpha = 0.3;
  pen.fillRect(0, 0, 8, 8);
  pen.globalAlpha = 1;
  pen.strokeStyle = theme.ink.switch;
  pen.lineWidth = 2.2;
  for (const shift of [-8, 0, 8]) {
    pen.beginPath(); pen.moveTo(shift - 1, 9); pen.lineTo(shift + 9, -1); pen.stroke();
  }
  theme.hatch = context.createPattern(tile, "repeat");
  return theme.hatch;
}

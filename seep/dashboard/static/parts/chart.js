/** A chart: lines over time below each other's marks, with the moment that is shown and the change that is selected. */

import { KINDS } from "../changes.js";
import { element, keyed, setAttributes, setStyle, setText, svg } from "../dom.js";
import { cut, moment } from "../format.js";
import { axisOf, roundNumbers, thinned } from "../lines.js";
import { placeAt } from "../past.js";

export const LEFT = 58;
export const RIGHT = 12;
const HEIGHT = 116;
const TOP = 6;
const BASE = HEIGHT - 20;
/** Pixels between two times on the axis, at least. */
const APART = 130;
/** The most changes that are drawn as lines, and characters of a name. */
const MOST_LINES = 200;
const NAME_FITS = 32;
const DASHES = [null, "9 5", "3 4", "14 4 3 4", "5 9"];

/** Makes a chart; `seek` is called with the time of a click. */
export function makeChart(seek) {
  const parts = {
    band: svg("rect", { class: "band", y: TOP, height: BASE - TOP }),
    grid: svg("g"),
    marks: svg("g"),
    lines: svg("g"),
    cursor: svg("line", { class: "cursor", y1: TOP, y2: BASE }),
  };
  const drawing = svg("svg", { class: "chart", role: "img" }, Object.values(parts));
  const [heading, keys] = [element("h3"), element("span", { class: "chart-head" })];
  const node = element("div", { class: "chart-box" }, element("div", { class: "chart-head" }, heading, keys), drawing);
  node.parts = { ...parts, heading, keys, drawing, drawn: null };
  drawing.addEventListener("click", (event) => {
    const { from, to, width } = node.frame;
    const share = (event.clientX - drawing.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
    seek(from + share * (to - from));
  });
  return node;
}

/** Brings a chart up to date. `frame` has the model, the times `from` and `to`, the width, and `x` of a time. */
export function changeChart(node, chart, frame, version) {
  const { parts } = node;
  const { model, x, from, to } = frame;
  node.frame = frame;
  setText(parts.heading, chart.name);
  if (parts.drawn !== version) drawLines(parts, chart, frame);
  parts.drawn = version;
  const cursor = x(Math.min(Math.max(model.at, from), to));
  setAttributes(parts.cursor, { x1: cursor, x2: cursor });
  drawBand(parts.band, frame);
  drawChanges(parts.marks, frame);
  const told = chart.lines.map((line) => {
    const value = line.points[placeAt(line.points, model.at)]?.value;
    return { ...line, text: `${cut(line.name, NAME_FITS)} ${chart.format(value)}` };
  });
  keyed(parts.keys, told, (each) => each.name, makeKey, (key, { text }) => setText(key.lastChild, text));
  const words = told.map((each) => each.text).join(", ");
  setAttributes(parts.drawing, { "aria-label": `${chart.name} over time. At ${moment(model.at)}: ${words}` });
}

function drawBand(band, { model, x, from, to }) {
  const change = model.changes.find((each) => each.id === model.selected.change);
  const [start, end] = change ? [Math.max(change.start, from), Math.min(change.end ?? model.end, to)] : [0, -1];
  const isShown = start <= end;
  setAttributes(band, { visibility: isShown ? "visible" : "hidden" });
  if (isShown) setAttributes(band, { x: x(start), width: Math.max(x(end) - x(start), 2) });
}

function drawChanges(root, { model, x, from, to }) {
  const isShown = ({ kind, start }) => start >= from && start <= to && kind !== "checkpoint";
  const make = ({ kind }) => {
    const line = svg("line", { class: "mark", y1: TOP, y2: BASE });
    setStyle(line, "stroke", `var(${KINDS[kind].colour})`);
    return line;
  };
  const shown = model.changes.filter(isShown).slice(-MOST_LINES);
  keyed(root, shown, (each) => each.id, make, (line, { start }) => setAttributes(line, { x1: x(start), x2: x(start) }));
}

function makeKey(line) {
  const stroke = styled(svg("line", { x2: 24, y1: 6, y2: 6, "stroke-width": 2.5 }), line.place);
  return element(
    "span",
    { class: "key" },
    svg("svg", { width: 24, height: 12, "aria-hidden": "true" }, stroke),
    element("span"),
  );
}

function drawLines({ drawing, grid, lines }, chart, { width, from, to, x }) {
  const shown = chart.lines.map((line) => ({ ...line, points: thinned(line.points, from, to, width) }));
  const axis = axisOf(shown.flatMap((line) => line.points.map(({ value }) => value)), chart.log, chart.limit);
  const y = (value) => BASE - axis.at(value) * (BASE - TOP);
  const times = roundNumbers(from, to, Math.max(2, Math.floor(width / APART)));
  setAttributes(drawing, { viewBox: `0 0 ${width} ${HEIGHT}` });
  grid.replaceChildren(
    ...axis.ticks.map((tick) => svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) })),
    ...axis.ticks.map((tick) => svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, chart.axis(tick))),
    ...times.map((tick) => timeText(tick, Math.min(Math.max(x(tick), LEFT), width - RIGHT - 14))),
  );
  const clamped = (at) => x(Math.min(Math.max(at, from), to));
  const drawn = shown.filter((line) => line.points.length);
  lines.replaceChildren(...drawn.map((line) => drawLine(line, chart.steps, clamped, y)));
}

function timeText(tick, x) {
  return svg("text", { x, y: HEIGHT - 5, "text-anchor": "middle" }, moment(tick).replace(".0 s", " s"));
}

function drawLine({ name, place, points }, steps, x, y) {
  const path = points.map(({ at, value }, number) => {
    const [left, top] = [x(at).toFixed(1), y(value).toFixed(1)];
    if (number === 0) return `M${left} ${top}`;
    return steps ? `H${left}V${top}` : `L${left} ${top}`;
  });
  return styled(svg("path", { class: "line", d: path.join("") }, svg("title", {}, name)), place);
}

/** Gives a line the colour and the dashes of its place: a line below another shows through the gaps. */
function styled(line, place) {
  setAttributes(line, { "stroke-dasharray": DASHES[place % DASHES.length] });
  setStyle(line, "stroke", `var(--series-${place % 10})`);
  return line;
}

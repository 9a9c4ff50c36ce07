/** Timelines: charts below each other, with a mark for every change, and the moment that is shown. */

import { KINDS } from "../changes.js";
import { element, keyed, setAttributes, setStyle, setText, svg } from "../dom.js";
import * as format from "../format.js";
import { axisOf, chartsOf, roundNumbers, thinned } from "../lines.js";

export const title = "Timelines";

const HEIGHT = 116;
const LEFT = 58;
const RIGHT = 12;
const TOP = 6;
const BOTTOM = 20;
/** Marks that are closer than so many pixels are one. */
const CLOSE = 26;
const NAME_FITS = 32;
/** The most marks that are drawn as lines. */
const MOST_LINES = 200;
const WINDOWS = [["all", "the whole run"], ["60", "one minute"], ["300", "five minutes"], ["3600", "one hour"]];
/** Kinds of change, the most important first: a mark of several has the sign of the first. */
const IMPORTANCE = ["failure", "recovery", "loss", "scaling", "migration", "drain", "balance", "plan", "savepoint", "checkpoint"];
const DASHES = [null, "9 5", "3 4", "14 4 3 4", "5 9"];

export function mount(root, app) {
  root.className = "card";
  const span = element("select", { class: "input", id: "time-window", on: { change: () => app.store.changed() } },
    WINDOWS.map(([value, name]) => element("option", { value }, name)));
  const marks = element("div", { class: "marks", role: "toolbar", "aria-label": "Changes over time; arrows go from mark to mark" });
  const charts = element("div", { class: "charts" });
  root.append(
    element("div", { class: "head" }, element("h2", {}, "Timelines"), signs(), element("label", { class: "check" }, "Show ", span)), marks, charts);

  const cache = { key: null, charts: [] };
  let last = null;
  new ResizeObserver(() => last && draw(last)).observe(charts);

  function draw(model) {
    last = model;
    const width = charts.clientWidth;
    if (!width) return;
    const [from, to] = windowOf(model, span.value);
    const frame = { model, width, from, to, x: (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT) };
    const key = `${model.series.length} ${model.series.at(-1)?.at} ${model.latencies.length} ${model.latencies.at(-1)?.at}`;
    if (cache.key !== key) Object.assign(cache, { key, charts: chartsOf(model, format) });
    drawMarks(marks, frame, app);
    keyed(charts, cache.charts.map((chart, place) => ({ ...chart, place })), (each) => each.place, () => makeChart(app), (node, chart) => changeChart(node, chart, frame, `${key} ${from} ${to} ${width}`));
  }

  return { update: draw };
}

function signs() {
  const shown = ["scaling", "recovery", "migration", "balance", "checkpoint"];
  return element("div", { class: "legend" }, shown.map((kind) => {
    const sign = element("b", { "aria-hidden": "true" }, KINDS[kind].sign);
    setStyle(sign, "color", `var(${KINDS[kind].colour})`);
    return element("span", {}, sign, KINDS[kind].title);
  }));
}

function windowOf(model, chosen) {
  const begin = model.begin;
  const end = Math.max(model.end, begin + 1);
  if (chosen === "all" || end - begin <= Number(chosen)) return [begin, end];
  const width = Number(chosen);
  const to = Math.min(end, Math.max(model.at + (model.isNow ? 0 : width / 4), begin + width));
  return [to - width, to];
}

// -- marks -------------------------------------------------------------------------------------------------------------

function drawMarks(root, frame, app) {
  const groups = [];
  for (const change of frame.model.changes) {
    if (change.start < frame.from || change.start > frame.to) continue;
    const x = frame.x(change.start);
    if (groups.length && x - groups.at(-1).x < CLOSE) groups.at(-1).changes.push(change);
    else groups.push({ x, changes: [change] });
  }
  keyed(root, groups, (each) => each.changes[0].id, () => makeMark(root, app), (button, group) => changeMark(button, group, frame.model.selected.change));
  if (!root.querySelector("[tabindex='0']")) root.firstChild?.setAttribute("tabindex", "0");
}

function makeMark(root, app) {
  const sign = element("span", { "aria-hidden": "true" });
  const many = element("sup", { "aria-hidden": "true" });
  const button = element("button", { type: "button", class: "mark-button", tabindex: "-1" }, sign, many);
  button.parts = { sign, many };
  button.addEventListener("click", () => {
    const place = button.changes.findIndex((each) => each.id === app.store.model.selected.change);
    app.store.select({ change: button.changes[(place + 1) % button.changes.length].id });
    root.dispatchEvent(new CustomEvent("seep-open", { bubbles: true }));
  });
  button.addEventListener("keydown", (event) => {
    const next = event.key === "ArrowRight" ? button.nextElementSibling : event.key === "ArrowLeft" ? button.previousElementSibling : null;
    if (!next) return;
    event.preventDefault();
    for (const each of root.children) each.setAttribute("tabindex", each === next ? "0" : "-1");
    next.focus();
  });
  return button;
}

function changeMark(button, { x, changes }, selected) {
  button.changes = changes;
  const kind = IMPORTANCE.find((each) => changes.some((change) => change.kind === each));
  const first = changes.find((each) => each.kind === kind);
  const isSelected = changes.some((each) => each.id === selected);
  const others = changes.length > 1 ? `, and ${format.count(changes.length - 1, "other change")}` : "";
  const words = `${format.moment(first.start)}: ${first.title}${others}`;
  setStyle(button, "left", `${x}px`);
  setStyle(button, "color", `var(${KINDS[kind].colour})`);
  setAttributes(button, { "aria-label": words, title: words, "aria-pressed": String(isSelected) });
  setText(button.parts.sign, KINDS[kind].sign);
  setText(button.parts.many, changes.length > 1 ? changes.length : "");
}

// -- charts ------------------------------------------------------------------------------------------------------------

function makeChart(app) {
  const heading = element("h3");
  const keys = element("span", { class: "chart-head" });
  const parts = { band: svg("rect", { class: "band", y: TOP, height: HEIGHT - TOP - BOTTOM }), grid: svg("g"), marks: svg("g"), lines: svg("g"), cursor: svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM }) };
  const drawing = svg("svg", { class: "chart", role: "img" }, Object.values(parts));
  const node = element("div", { class: "chart-box" }, element("div", { class: "chart-head" }, heading, keys), drawing);
  node.parts = { ...parts, heading, keys, drawing, drawn: null };
  drawing.addEventListener("click", (event) => {
    const share = (event.clientX - drawing.getBoundingClientRect().left - LEFT) / (node.frame.width - LEFT - RIGHT);
    app.store.seek(node.frame.from + share * (node.frame.to - node.frame.from));
  });
  return node;
}

function changeChart(node, chart, frame, key) {
  const { parts } = node;
  node.frame = frame;
  setText(parts.heading, chart.name);
  if (parts.drawn !== key) {
    parts.drawn = key;
    drawLines(parts, chart, frame);
  }
  const { model, x } = frame;
  const cursor = x(Math.min(Math.max(model.at, frame.from), frame.to));
  setAttributes(parts.cursor, { x1: cursor, x2: cursor });
  const band = model.changes.find((each) => each.id === model.selected.change);
  const [left, right] = band ? [x(Math.max(band.start, frame.from)), x(Math.min(band.end ?? model.end, frame.to))] : [0, 0];
  setAttributes(parts.band, { x: left, width: Math.max(right - left, band && right >= left ? 2 : 0), visibility: band ? "visible" : "hidden" });
  drawChangeLines(parts.marks, frame);
  const values = chart.lines.map((line) => ({ ...line, value: line.points[placeAtPoint(line.points, model.at)]?.[1] }));
  keyed(parts.keys, values, (each) => each.name, makeKey, (key, line) => setText(key.lastChild, `${format.cut(line.name, NAME_FITS)} ${chart.format(line.value)}`));
  const words = values.map((each) => `${each.name} ${chart.format(each.value)}`).join(", ");
  setAttributes(parts.drawing, { "aria-label": `${chart.name} over time. At ${format.moment(model.at)}: ${words}` });
}

function placeAtPoint(points, at) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function makeKey(line) {
  const stroke = svg("line", { x1: 0, x2: 24, y1: 6, y2: 6, "stroke-width": 2.5, "stroke-dasharray": DASHES[line.place % DASHES.length] });
  setStyle(stroke, "stroke", `var(--series-${line.place % 10})`);
  return element("span", { class: "key" }, svg("svg", { width: 24, height: 12, "aria-hidden": "true" }, stroke), element("span"));
}

function drawLines(parts, chart, { width, from, to, x }) {
  const shown = chart.lines.map((line) => ({ ...line, points: thinned(line.points, from, to, width) }));
  const axis = axisOf(shown.flatMap((line) => line.points.map(([, value]) => value)), chart.log, chart.limit);
  const y = (value) => HEIGHT - BOTTOM - axis.at(value) * (HEIGHT - TOP - BOTTOM);
  setAttributes(parts.drawing, { viewBox: `0 0 ${width} ${HEIGHT}` });
  const across = axis.ticks.flatMap((tick) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }), svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, chart.axis(tick)),
  ]);
  const times = roundNumbers(from, to, Math.max(2, Math.floor(width / 130))).map((tick) =>
    svg("text", { x: Math.min(Math.max(x(tick), LEFT), width - RIGHT - 14), y: HEIGHT - 5, "text-anchor": "middle" }, format.moment(tick).replace(".0 s", " s")));
  parts.grid.replaceChildren(...across, ...times);
  parts.lines.replaceChildren(...shown.filter((line) => line.points.length).map((line) => drawLine(line, chart.steps, x, y, from, to)));
}

function drawLine({ name, place, points }, steps, x, y, from, to) {
  const inside = points.map(([at, value]) => [x(Math.min(Math.max(at, from), to)), y(value)]);
  const path = inside.map(([left, top], number) => `${number ? (steps ? `H${left.toFixed(1)}V` : `L${left.toFixed(1)} `) : `M${left.toFixed(1)} `}${top.toFixed(1)}`).join("");
  const line = svg("path", { class: "line", d: path, "stroke-dasharray": DASHES[place % DASHES.length] }, svg("title", {}, name));
  setStyle(line, "stroke", `var(--series-${place % 10})`);
  return line;
}

function drawChangeLines(root, { model, from, to, x }) {
  const shown = model.changes.filter((each) => each.start >= from && each.start <= to && !/point$/.test(each.kind)).slice(-MOST_LINES);
  keyed(root, shown, (each) => each.id, (each) => {
    const line = svg("line", { class: "mark", y1: TOP, y2: HEIGHT - BOTTOM });
    setStyle(line, "stroke", `var(${KINDS[each.kind].colour})`);
    return line;
  }, (line, each) => setAttributes(line, { x1: x(each.start), x2: x(each.start) }));
}


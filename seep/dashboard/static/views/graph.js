/** The execution graph: operators in layers, their instances as cells, rates and back-pressure on the edges. */

import { natural, nodesAt, plainName } from "../cluster.js";
import { colour, element, isStill, keyed, setAttributes, setStyle, setText, svg } from "../dom.js";
import { bytes, count, cut, number, percent, rate, short } from "../format.js";
import { routed } from "../layers.js";
import { recoveringAt } from "../past.js";

export const title = "Execution graph";

const WIDTH = 208;
const PAD = 12;
const HEADER = 66;
const GAP = { across: 26, along: 112, below: 58 };
const MARGIN = 6;
const WAYPOINT = 16;
/** Below this width of the window layers go down instead of to the right. */
const NARROW = 700;
/** The smallest scale at which the text can be read. */
const SMALLEST = 0.82;
/** The sizes of cells by the most instances that have it: width, height, and gap. */
const CELLS = [[11, 14, 22, 3], [52, 11, 15, 3], [200, 6, 9, 2]];
/** More instances than this are drawn on a canvas. */
const MOST_CELLS = 200;
const CANVAS_HEIGHT = 120;
/** Epochs of output that a receiver has not fetched, from which on an edge counts as held up. */
const HELD = 3;
const NAME_FITS = 26;
const ROWS = 200;
const LEVELS = [0.25, 0.5, 0.7, 0.9];

export function mount(root, app) {
  root.className = "card";
  const drawing = svg("svg", { class: "graph-drawing", role: "group", "aria-label": "Execution graph: operators from the sources to the sinks" });
  const edges = svg("g");
  const boxes = svg("g");
  drawing.append(edges, boxes);
  const scroll = element("div", { class: "graph-scroll scroll", tabindex: "0", role: "group", "aria-label": "Execution graph, scrolls" }, drawing);
  const details = makeDetails(app);
  root.append(element("div", { class: "head" }, element("h2", {}, "Execution graph"), legend()), scroll, details.node);

  let last = null;
  new ResizeObserver(() => last && draw(last)).observe(scroll);

  function draw(model) {
    last = model;
    const view = viewOf(model);
    const plan = planOf(model, view, scroll.clientWidth);
    const fits = scroll.clientWidth ? Math.min(1, Math.max(SMALLEST, scroll.clientWidth / plan.width)) : 1;
    setAttributes(drawing, { viewBox: `0 0 ${plan.width} ${plan.height}`, width: Math.floor(plan.width * fits), height: Math.floor(plan.height * fits) });
    keyed(edges, plan.edges, (each) => each.id, makeEdge, changeEdge);
    keyed(boxes, plan.boxes, (each) => each.name, (box) => makeBox(box, app), (node, box) => changeBox(node, box, model));
    details.update(model, view);
  }

  return { update: draw };
}

function legend() {
  const steps = ["below 25 %", "50 %", "70 %", "90 %", "above"];
  const cells = steps.map((words, step) => element("span", {}, element("i", { class: `swatch use-${step}` }), words));
  return element("div", { class: "legend" }, element("span", {}, "An instance, by its CPU share:"), cells,
    element("span", {}, element("i", { class: "swatch waiting" }), "recovering"), element("span", {}, element("i", { class: "swatch held" }), "held up"));
}

// -- what is drawn -----------------------------------------------------------------------------------------------------

/** What the status tells of each operator, and of each edge. */
function viewOf({ run, status, events, at, selected }) {
  const recovering = new Set(recoveringAt(events, at).flatMap((each) => each.waiting));
  const operators = new Map(Object.entries(run.operators).map(([name, kind], place) => [name, { name, kind, place, instances: [] }]));
  for (const each of status?.operators ?? []) Object.assign(operators.get(each.name) ?? {}, { told: each });
  for (const each of status?.instances ?? []) {
    const name = plainName(each.name);
    const isWaiting = recovering.has(name) || each.phase === "restoring" || each.phase === "recovering";
    operators.get(each.operator)?.instances.push({ ...each, key: name, isWaiting, isSelected: selected.instance === name });
  }
  // an instance whose node is lost is not reported before it runs again
  for (const name of recovering) {
    const of = [...operators.values()].find((each) => name.startsWith(`${each.name}[`) && name.lastIndexOf("[") === each.name.length);
    if (of && !of.instances.some((each) => each.key === name)) of.instances.push({ key: name, name, operator: of.name, isWaiting: true, utilisation: 0 });
  }
  for (const each of operators.values()) each.instances.sort((one, other) => natural(one.key, other.key));
  return operators;
}

function planOf({ run, status, selected }, view, room) {
  const { layers, ways } = routed(Object.keys(run.operators), run.edges);
  const isDown = room > 0 && room < NARROW;
  const size = (item) => (item.name === null ? [isDown ? WAYPOINT : WIDTH, WAYPOINT] : [WIDTH, heightOf(view.get(item.name).instances.length)]);
  const places = isDown ? downwards(layers, size) : rightwards(layers, size);
  const boxes = layers.flat().filter((each) => each.name !== null).map((each) => {
    const of = view.get(each.name);
    return { ...of, ...places.get(each.key), isSelected: selected.operator === each.name };
  });
  const labels = [];
  const edges = ways.map((way) => edgeOf(way, places, isDown, status, view, labels));
  const all = [...places.values()];
  const right = Math.max(WIDTH, ...all.map((each) => each.x + each.width), ...labels.map((each) => each.x + each.width / 2));
  const bottom = Math.max(0, ...all.map((each) => each.y + each.height), ...labels.map((each) => each.y));
  return { boxes, edges, width: right + MARGIN, height: bottom + MARGIN };
}

function rightwards(layers, size) {
  const columns = layers.map((layer) => layer.reduce((all, each) => all + size(each)[1] + GAP.across, -GAP.across));
  const tallest = Math.max(0, ...columns);
  const places = new Map();
  layers.forEach((layer, place) => {
    let y = MARGIN + (tallest - columns[place]) / 2;
    for (const each of layer) {
      const [width, height] = size(each);
      places.set(each.key, { x: MARGIN + place * (WIDTH + GAP.along), y, width, height });
      y += height + GAP.across;
    }
  });
  return places;
}

function downwards(layers, size) {
  const rows = layers.map((layer) => layer.reduce((all, each) => all + size(each)[0] + GAP.across, -GAP.across));
  const widest = Math.max(0, ...rows);
  const places = new Map();
  let y = MARGIN;
  layers.forEach((layer, place) => {
    let x = MARGIN + (widest - rows[place]) / 2;
    for (const each of layer) {
      const [width, height] = size(each);
      places.set(each.key, { x, y, width, height });
      x += width + GAP.across;
    }
    y += Math.max(0, ...layer.map((each) => size(each)[1])) + GAP.below;
  });
  return places;
}

function heightOf(instances) {
  return HEADER + cellsHeight(instances) + PAD;
}

function cellsHeight(instances) {
  if (instances > MOST_CELLS) return CANVAS_HEIGHT;
  const { columns, height, gap } = gridOf(instances);
  return Math.max(1, Math.ceil(instances / columns)) * (height + gap) - gap;
}

function gridOf(instances) {
  const [, width, height, gap] = CELLS.find(([most]) => instances <= most) ?? CELLS.at(-1);
  return { width, height, gap, columns: Math.floor((WIDTH - 2 * PAD + gap) / (width + gap)) };
}

// -- edges -------------------------------------------------------------------------------------------------------------

function edgeOf({ id, upstream, downstream, way }, places, isDown, status, view, labels) {
  const points = way.map((key) => places.get(key));
  let path = "";
  for (let place = 1; place < points.length; place += 1) {
    const [x1, y1] = isDown ? [points[place - 1].x + points[place - 1].width / 2, points[place - 1].y + points[place - 1].height] : [points[place - 1].x + points[place - 1].width, middle(points[place - 1])];
    const [x2, y2] = isDown ? [points[place].x + points[place].width / 2, points[place].y] : [points[place].x, middle(points[place])];
    path += place === 1 ? `M${x1} ${y1}` : `L${x1} ${y1}`;
    path += isDown ? `C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}` : `C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
  }
  const end = points.at(-1);
  const tip = isDown ? `M${end.x + end.width / 2 - 5} ${end.y - 8}h10l-5 8z` : `M${end.x - 8} ${middle(end) - 5}v10l8 -5z`;
  const per = ratesOf(status, upstream, downstream);
  const unsent = Math.max(0, ...(view.get(upstream)?.instances ?? []).map((each) => each.unsent ?? 0));
  const held = unsent >= HELD;
  const lines = [per === undefined ? null : `${short(per)} rows/s`, held ? `${short(unsent)} unsent` : null].filter(Boolean);
  const label = lines.length ? placed(points, isDown, lines, labels) : null;
  return { id, path, tip, held, label, words: `${upstream} to ${downstream}: ${rate(per)}, at most ${count(unsent, "epoch")} of output not fetched yet` };
}

function middle(place) {
  return place.y + place.height / 2;
}

function ratesOf(status, upstream, downstream) {
  const prefix = `${upstream}->${downstream}:`;
  const known = Object.entries(status?.edges ?? {}).filter(([edge]) => edge.startsWith(prefix) && /^\d+$/.test(edge.slice(prefix.length)));
  return known.length ? known.reduce((all, [, per]) => all + per, 0) : undefined;
}

/** Finds a place for the text of an edge, between its first two layers, where no other text is. */
function placed(points, isDown, lines, labels) {
  const [from, to] = points;
  const width = Math.max(...lines.map((each) => each.length)) * 6.6;
  const height = 14 * lines.length;
  const x = isDown ? (from.x + from.width / 2 + to.x + to.width / 2) / 2 : from.x + from.width + (to.x - from.x - from.width) / 2;
  let y = isDown ? (from.y + from.height + to.y) / 2 + 4 : (middle(from) + middle(to)) / 2 - 8;
  const label = { x, y, width, height, lines };
  while (labels.some((each) => Math.abs(each.x - x) < (each.width + width) / 2 + 4 && y - height < each.y + 2 && each.y - each.height < y + 2)) {
    y += 8;
    label.y = y;
  }
  labels.push(label);
  return label;
}

function makeEdge() {
  const node = svg("g");
  node.parts = { told: svg("title"), path: svg("path", { class: "edge" }), tip: svg("path", { class: "tip" }), lines: svg("g") };
  node.append(...Object.values(node.parts));
  return node;
}

function changeEdge(node, { path, tip, held, label, words }) {
  const state = held ? " held" : "";
  setText(node.parts.told, words);
  setAttributes(node.parts.path, { class: `edge${state}`, d: path });
  setAttributes(node.parts.tip, { class: `tip${state}`, d: tip });
  const lines = (label?.lines ?? []).map((text, place, all) => ({ text, place, y: label.y - 14 * (all.length - 1 - place) }));
  keyed(node.parts.lines, lines, (each) => each.place, () => svg("text"), (text, each) => {
    setAttributes(text, { class: `edge-text${each.place ? state : ""}`, x: label.x, y: each.y });
    setText(text, each.text);
  });
}

// -- boxes -------------------------------------------------------------------------------------------------------------

function makeBox({ name }, app) {
  const node = svg("g", { class: "operator", role: "button", tabindex: "0", "data-operator": name });
  node.parts = {
    told: svg("title"), box: svg("rect", { class: "box", rx: 8, width: WIDTH }), band: svg("rect", { class: "band", width: 5, rx: 2, x: 0, y: 8 }),
    name: svg("text", { class: "name", x: PAD, y: 22 }), figures: svg("text", { x: PAD, y: 40 }), rates: svg("text", { x: PAD, y: 56 }), cells: svg("g"),
  };
  node.append(...Object.values(node.parts));
  const toggle = () => app.store.select({ operator: app.store.model.selected.operator === name ? null : name, instance: null });
  node.addEventListener("click", toggle);
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    toggle();
  });
  return node;
}

function changeBox(node, box) {
  const { parts } = node;
  const told = box.told;
  const words = `${count(box.instances.length, "instance")}${told ? `, ${percent(told.utilisation)} busy` : ""}`;
  const rates = box.kind === "source" ? `${rate(told?.rows_out_per_second)} out` : `${rate(told?.rows_in_per_second)} in`;
  setStyle(node, "transform", `translate(${box.x}px, ${box.y}px)`);
  setAttributes(node, { class: `operator${box.isSelected ? " selected" : ""}`, "aria-pressed": String(box.isSelected), "aria-label": `${box.name}, ${box.kind}: ${words}, ${rates}` });
  setText(parts.told, `${box.name} (${box.kind})\n${words}\n${rates}`);
  setAttributes(parts.box, { height: box.height });
  setAttributes(parts.band, { height: box.height - 16 });
  setStyle(parts.band, "fill", `var(--series-${box.place % 10})`);
  if (parts.name.textContent === "") fit(parts.name, box.name);
  setText(parts.figures, words);
  setText(parts.rates, rates);
  if (box.instances.length > MOST_CELLS) drawCanvas(node, box);
  else drawCells(node, box);
}

/** Writes as much of a name as there is room for. */
function fit(node, name) {
  let most = NAME_FITS;
  setText(node, cut(name, most));
  while (most > 2 && node.getComputedTextLength() > WIDTH - 2 * PAD) setText(node, cut(name, (most -= 1)));
}

function drawCells(node, box) {
  node.parts.canvas?.remove();
  node.parts.canvas = null;
  const { width, height, gap, columns } = gridOf(box.instances.length);
  const items = box.instances.map((each, place) => ({
    ...each, width, height, x: PAD + (place % columns) * (width + gap), y: HEADER + Math.floor(place / columns) * (height + gap),
  }));
  keyed(node.parts.cells, items, (each) => each.key, makeCell, changeCell, leaves);
}

function makeCell() {
  const node = svg("g", { class: "cell new" });
  node.parts = { told: svg("title"), whole: svg("rect", { class: "whole", rx: 2 }), used: svg("rect", { rx: 1.5 }) };
  node.append(...Object.values(node.parts));
  node.addEventListener("animationend", () => node.classList.remove("new"));
  return node;
}

function changeCell(node, cell) {
  const used = Math.min(Math.max(cell.utilisation ?? 0, 0), 1) * (cell.height - 2);
  const isNew = node.classList.contains("new");
  setAttributes(node, { class: `cell${isNew ? " new" : ""}${cell.isWaiting ? " waiting" : ""}${cell.isSelected ? " selected" : ""}` });
  setStyle(node, "transform", `translate(${cell.x}px, ${cell.y}px)`);
  setText(node.parts.told, cell.isWaiting ? `${cell.key}: recovering` : `${cell.key} on ${cell.node}: ${percent(cell.utilisation)} of its CPU share`);
  setAttributes(node.parts.whole, { width: cell.width, height: cell.height });
  setAttributes(node.parts.used, { class: `used use-${levelOf(cell.utilisation)}`, x: 1, y: cell.height - 1 - used, width: cell.width - 2, height: cell.isWaiting ? 0 : used });
}

function leaves(node) {
  if (isStill() || document.hidden) return false;
  node.classList.add("leaving");
  node.addEventListener("animationend", () => node.remove());
  return true;
}

/** The step of the scale of colours for a utilisation: 0 to 4. */
export function levelOf(utilisation) {
  const step = LEVELS.findIndex((limit) => (utilisation ?? 0) < limit);
  return step < 0 ? LEVELS.length : step;
}

/** Draws very many instances: a square for each. The box itself has the text. */
function drawCanvas(node, box) {
  keyed(node.parts.cells, [], (each) => each.key, makeCell, changeCell);
  if (!node.parts.canvas) {
    const canvas = document.createElement("canvas");
    node.parts.canvas = svg("foreignObject", { x: PAD, y: HEADER, width: WIDTH - 2 * PAD, height: CANVAS_HEIGHT }, canvas);
    node.append(node.parts.canvas);
  }
  const canvas = node.parts.canvas.firstChild;
  const scale = Math.min(devicePixelRatio || 1, 2);
  const [width, height] = [WIDTH - 2 * PAD, CANVAS_HEIGHT];
  if (canvas.width !== width * scale) Object.assign(canvas, { width: width * scale, height: height * scale });
  setStyle(canvas, "width", `${width}px`);
  setStyle(canvas, "height", `${height}px`);
  const paint = canvas.getContext("2d");
  paint.setTransform(scale, 0, 0, scale, 0, 0);
  paint.clearRect(0, 0, width, height);
  const side = Math.max(1, Math.floor(Math.sqrt((width * height) / box.instances.length)));
  const columns = Math.floor(width / side);
  const [none, bad] = [colour("--use-none"), colour("--bad")];
  const levels = [0, 1, 2, 3, 4].map((level) => colour(`--use-${level}`));
  const edge = side > 3 ? 1 : 0;
  box.instances.forEach((each, place) => {
    const [x, y] = [(place % columns) * side, Math.floor(place / columns) * side];
    const used = Math.min(each.utilisation ?? 0, 1) * (side - edge);
    paint.fillStyle = each.isWaiting ? bad : none;
    paint.fillRect(x, y, side - edge, side - edge);
    if (each.isWaiting) return;
    paint.fillStyle = levels[levelOf(each.utilisation)];
    paint.fillRect(x, y + side - edge - used, side - edge, used);
  });
}

// -- the instances of the selected operator ----------------------------------------------------------------------------

const COLUMNS = [
  ["instance", (each) => each.key], ["", (each) => (each.isWaiting ? "recovering" : each.phase ?? "")], ["busy", (each) => percent(each.utilisation)],
  ["rows/s in", (each) => number(each.rows_in_per_second)], ["rows/s out", (each) => number(each.rows_out_per_second)], ["waiting", (each) => number(each.waiting)],
  ["unsent", (each) => number(each.unsent)], ["state", (each) => bytes(each.state_bytes)], ["buffer", (each) => bytes(each.outbox_bytes)],
];

function makeDetails(app) {
  const heading = element("h3");
  const body = element("tbody");
  const close = element("button", { type: "button", class: "button", on: { click: () => app.store.select({ operator: null, instance: null }) } }, "Close");
  const head = ["VM", "node", ...COLUMNS.map(([name]) => name)].map((name, place) => element("th", { scope: "col", class: place > 3 ? "number" : "" }, name || "phase"));
  const table = element("table", { class: "table" }, element("thead", {}, element("tr", {}, head)), body);
  const more = element("p", { class: "muted" });
  const node = element("div", { class: "details", hidden: true }, element("div", { class: "head" }, heading, close),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Instances of the selected operator" }, table), more);

  function update(model, view) {
    const of = view.get(model.selected.operator);
    node.hidden = !of;
    if (!of) return;
    const vms = new Map(nodesAt(model.events, model.status, model.at).map((each) => [each.name, each.vm]));
    const key = (each) => `${vms.get(each.node) ?? ""}\n${each.node ?? ""}\n${each.key}`;
    const sorted = [...of.instances].sort((one, other) => natural(key(one), key(other)));
    setText(heading, `Instances of ${of.name}, by VM and node`);
    keyed(body, sorted.slice(0, ROWS), (each) => each.key, makeRow, (line, each) => changeRow(line, each, vms));
    setText(more, sorted.length > ROWS ? `and ${number(sorted.length - ROWS)} more instances` : "");
  }

  return { node, update };
}

function makeRow() {
  return element("tr", {}, element("td"), element("td"), COLUMNS.map((_, place) => element(place ? "td" : "th", { scope: place ? null : "row", class: place > 1 ? "number" : "" })));
}

function changeRow(line, each, vms) {
  const texts = [vms.get(each.node) ?? "–", each.node ?? "–", ...COLUMNS.map(([, text]) => text(each))];
  texts.forEach((text, place) => setText(line.children[place], text));
}

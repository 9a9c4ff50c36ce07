/** The shapes of the execution graph: an edge, a box, and its instances as cells, or on a canvas if there are many. */

import { colour, isStill, keyed, setAttributes, setStyle, setText, svg } from "../dom.js";
import { count, cut, percent, rate } from "../format.js";
import { HEADER, PAD, WIDTH, linesOf } from "./graph_plan.js";

const ROOM = WIDTH - 2 * PAD;
/** The most characters of a name. */
const NAME_FITS = 26;
/** The upper ends of the steps of utilisation, but the last. */
const LEVELS = [0.25, 0.5, 0.7, 0.9];

/** The step of the scale of colours for a utilisation: 0 to 4. */
export function levelOf(utilisation) {
  const step = LEVELS.findIndex((limit) => (utilisation ?? 0) < limit);
  return step < 0 ? LEVELS.length : step;
}

function group(attributes, parts) {
  const node = svg("g", attributes, Object.values(parts));
  node.parts = parts;
  return node;
}

// -- edges ------------------------------------------------------------------------------------------------------------

export function makeEdge() {
  const [told, path] = [svg("title"), svg("path", { class: "edge" })];
  return group({}, { told, path, tip: svg("path", { class: "tip" }), lines: svg("g") });
}

export function changeEdge({ parts }, { path, tip, held, label, words }) {
  const state = held ? " held" : "";
  setText(parts.told, words);
  setAttributes(parts.path, { class: `edge${state}`, d: path });
  setAttributes(parts.tip, { class: `tip${state}`, d: tip });
  keyed(parts.lines, linesOf(label), (each) => each.place, () => svg("text"), (node, { text, place, x, y }) => {
    setAttributes(node, { class: `edge-text${place ? state : ""}`, x, y });
    setText(node, text);
  });
}

// -- boxes ------------------------------------------------------------------------------------------------------------

/** Makes the box of an operator; `choose` is called when it is clicked, or Enter or Space is pressed on it. */
export function makeBox({ name }, choose) {
  const node = group({ class: "operator", role: "button", tabindex: "0", "data-operator": name }, {
    told: svg("title"),
    box: svg("rect", { class: "box", rx: 8, width: WIDTH }),
    band: svg("rect", { class: "band", width: 5, rx: 2, x: 0, y: 8 }),
    name: svg("text", { class: "name", x: PAD, y: 22 }),
    figures: svg("text", { x: PAD, y: 40 }),
    rates: svg("text", { x: PAD, y: 56 }),
    cells: svg("g"),
  });
  node.addEventListener("click", choose);
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  });
  return node;
}

export function changeBox(node, box) {
  const { parts } = node;
  const { told, instances } = box;
  const words = `${count(instances.length, "instance")}${told ? `, ${percent(told.utilisation)} busy` : ""}`;
  const isSource = box.kind === "source";
  const rates = isSource ? `${rate(told?.rows_out_per_second)} out` : `${rate(told?.rows_in_per_second)} in`;
  setStyle(node, "transform", `translate(${box.x}px, ${box.y}px)`);
  setAttributes(node, {
    class: `operator${box.isSelected ? " selected" : ""}`,
    "aria-pressed": String(box.isSelected),
    "aria-label": `${box.name}, ${box.kind}: ${words}, ${rates}`,
  });
  setText(parts.told, `${box.name} (${box.kind})\n${words}\n${rates}`);
  setAttributes(parts.box, { height: box.height });
  setAttributes(parts.band, { height: box.height - 16 });
  setStyle(parts.band, "fill", `var(--series-${box.place % 10})`);
  if (parts.name.textContent === "") fit(parts.name, box.name);
  setText(parts.figures, words);
  setText(parts.rates, rates);
  if (box.isPainted) paintCells(node, box);
  else drawCells(node, box);
}

/** Writes as much of a name as there is room for. */
function fit(node, name) {
  let most = NAME_FITS;
  setText(node, cut(name, most));
  while (most > 2 && node.getComputedTextLength() > ROOM) setText(node, cut(name, (most -= 1)));
}

// -- instances --------------------------------------------------------------------------------------------------------

/** Where the cell of a place is in a grid. */
function spotOf({ width, height, gap, columns }, place) {
  return { x: (place % columns) * (width + gap), y: Math.floor(place / columns) * (height + gap) };
}

function drawCells(node, { instances, grid }) {
  node.parts.canvas?.remove();
  node.parts.canvas = null;
  const { width, height } = grid;
  const items = instances.map((each, place) => {
    const { x, y } = spotOf(grid, place);
    return { ...each, width, height, x: PAD + x, y: HEADER + y };
  });
  keyed(node.parts.cells, items, (each) => each.key, makeCell, changeCell, leaves);
}

function makeCell() {
  const [told, whole] = [svg("title"), svg("rect", { class: "whole", rx: 2 })];
  const node = group({ class: "cell new" }, { told, whole, used: svg("rect", { x: 1, rx: 1.5 }) });
  node.addEventListener("animationend", () => node.classList.remove("new"));
  return node;
}

function changeCell(node, { key, node: host, utilisation, isWaiting, isSelected, x, y, width, height }) {
  const { told, whole, used } = node.parts;
  const high = isWaiting ? 0 : Math.min(Math.max(utilisation ?? 0, 0), 1) * (height - 2);
  const states = [node.classList.contains("new") && "new", isWaiting && "waiting", isSelected && "selected"];
  setAttributes(node, { class: ["cell", ...states].filter(Boolean).join(" ") });
  setStyle(node, "transform", `translate(${x}px, ${y}px)`);
  setText(told, isWaiting ? `${key}: recovering` : `${key} on ${host}: ${percent(utilisation)} of its CPU share`);
  setAttributes(whole, { width, height });
  const bottom = height - 1;
  setAttributes(used, { class: `used use-${levelOf(utilisation)}`, y: bottom - high, width: width - 2, height: high });
}

/** Has a cell fade away, where it may move. */
function leaves(node) {
  if (isStill() || document.hidden) return false;
  node.classList.add("leaving");
  node.addEventListener("animationend", () => node.remove());
  return true;
}

/** Paints the cells of very many instances. The box itself has the text. */
function paintCells(node, { instances, grid }) {
  keyed(node.parts.cells, [], (each) => each.key, makeCell, changeCell);
  node.parts.canvas ??= node.appendChild(svg("foreignObject", { x: PAD, y: HEADER }, document.createElement("canvas")));
  const paint = sized(node.parts.canvas, grid.total);
  const { width, height } = grid;
  const [none, bad] = [colour("--use-none"), colour("--bad")];
  const levels = [0, 1, 2, 3, 4].map((level) => colour(`--use-${level}`));
  instances.forEach(({ utilisation = 0, isWaiting }, place) => {
    const { x, y } = spotOf(grid, place);
    const used = isWaiting ? 0 : Math.min(utilisation, 1) * height;
    paint.fillStyle = isWaiting ? bad : none;
    paint.fillRect(x, y, width, height);
    paint.fillStyle = levels[levelOf(utilisation)];
    paint.fillRect(x, y + height - used, width, used);
  });
}

/** Returns the empty canvas of a box with a height, sharp on screens with more points. */
function sized(frame, height) {
  const canvas = frame.firstChild;
  const scale = Math.min(devicePixelRatio || 1, 2);
  setAttributes(frame, { width: ROOM, height });
  setStyle(canvas, "width", `${ROOM}px`);
  setStyle(canvas, "height", `${height}px`);
  setAttributes(canvas, { width: ROOM * scale, height: height * scale });
  const paint = canvas.getContext("2d");
  paint.setTransform(scale, 0, 0, scale, 0, 0);
  paint.clearRect(0, 0, ROOM, height);
  return paint;
}

/** The plan of the execution graph: what is drawn of each operator, and where boxes, edges and texts are. */

import { plainName } from "../cluster.js";
import { count, rate, short } from "../format.js";
import { routed } from "../layers.js";
import { identityOf, recoveringAt } from "../past.js";

export const WIDTH = 208;
export const PAD = 12;
export const HEADER = 66;
const ROOM = WIDTH - 2 * PAD;
/** The sizes of cells by the most instances that have it: width, height, and gap. More share a height. */
const CELLS = [[11, 14, 22, 3], [52, 11, 15, 3], [200, 6, 9, 2]];
const HIGHEST = 120;
/** The most instances that are shapes; more are painted on canvases. */
const SHAPES = 200;
/** Between boxes of a layer, between layers side by side, and between layers below each other. */
const GAP = { across: 26, along: 112, below: 58 };
const MARGIN = 6;
const WAYPOINT = 16;
const LINE = 14;
/** Below this width of the window layers go down instead of to the right. */
const NARROW = 700;
/** Epochs of output that a receiver has not fetched, from which on an edge counts as held up. */
const HELD = 3;

/** Returns by operator what is told of it, and its instances in order; also those that are about to recover. */
export function operatorsOf({ run, status, events, at, selected }) {
  const recovering = new Set(recoveringAt(events, at).flatMap((each) => each.waiting));
  const kinds = Object.entries(run.operators);
  const found = new Map(kinds.map(([name, kind], place) => [name, { name, kind, place, instances: [] }]));
  for (const each of status?.operators ?? []) Object.assign(found.get(each.name) ?? {}, { told: each });
  const known = new Set();
  for (const each of status?.instances ?? []) {
    const key = plainName(each.name);
    const isWaiting = recovering.has(key) || each.phase === "restoring" || each.phase === "recovering";
    found.get(each.operator)?.instances.push({ ...each, key, isWaiting, isSelected: selected.instance === key });
    known.add(key);
  }
  // an instance whose node is lost is not reported before it runs again
  for (const key of recovering) {
    const { operator, index } = identityOf(key);
    if (!known.has(key)) found.get(operator)?.instances.push({ key, operator, index, isWaiting: true, utilisation: 0 });
  }
  const isPainted = (status?.instances?.length ?? 0) > SHAPES;
  for (const each of found.values()) {
    each.instances.sort((one, other) => one.index - other.index);
    each.grid = gridOf(each.instances.length);
    each.isPainted = isPainted;
  }
  return found;
}

/** Returns the boxes and edges with their places, and the size of all. `room` is the width of the window. */
export function planOf({ run, status, selected }, operators, room) {
  const { layers, ways } = routed(Object.keys(run.operators), run.edges);
  const isDown = room > 0 && room < NARROW;
  const places = isDown ? downwards(layers, operators) : rightwards(layers, operators);
  const shown = layers.flat().filter((each) => each.name !== null);
  const boxes = shown.map(({ key, name }) => ({
    ...operators.get(name),
    ...places.get(key),
    isSelected: selected.operator === name,
  }));
  const labels = [];
  const edges = ways.map((way) => edgeOf(way, places, isDown, status, operators, labels));
  const all = [...places.values()];
  const right = [...all.map((each) => each.x + each.width), ...labels.map((each) => each.x + each.width / 2)];
  const bottom = [...all.map((each) => each.y + each.height), ...labels.map((each) => each.y)];
  return { boxes, edges, width: Math.max(WIDTH, ...right) + MARGIN, height: Math.max(0, ...bottom) + MARGIN };
}

// -- boxes ------------------------------------------------------------------------------------------------------------

function rightwards(layers, operators) {
  const height = ({ name }) => (name === null ? WAYPOINT : heightOf(operators.get(name)));
  const columns = layers.map((layer) => layer.reduce((all, each) => all + height(each) + GAP.across, -GAP.across));
  const tallest = Math.max(0, ...columns);
  const places = new Map();
  layers.forEach((layer, place) => {
    let y = MARGIN + (tallest - columns[place]) / 2;
    for (const each of layer) {
      places.set(each.key, { x: MARGIN + place * (WIDTH + GAP.along), y, width: WIDTH, height: height(each) });
      y += height(each) + GAP.across;
    }
  });
  return places;
}

function downwards(layers, operators) {
  const width = ({ name }) => (name === null ? WAYPOINT : WIDTH);
  const height = ({ name }) => (name === null ? WAYPOINT : heightOf(operators.get(name)));
  const rows = layers.map((layer) => layer.reduce((all, each) => all + width(each) + GAP.across, -GAP.across));
  const widest = Math.max(0, ...rows);
  const places = new Map();
  let y = MARGIN;
  layers.forEach((layer, place) => {
    let x = MARGIN + (widest - rows[place]) / 2;
    for (const each of layer) {
      places.set(each.key, { x, y, width: width(each), height: height(each) });
      x += width(each) + GAP.across;
    }
    y += Math.max(0, ...layer.map(height)) + GAP.below;
  });
  return places;
}

function heightOf({ grid }) {
  return HEADER + grid.total + PAD;
}

/** The size of the cells of so many instances, how many are side by side, and how high all are together. */
function gridOf(instances) {
  const [, width, height, gap] = CELLS.find(([most]) => instances <= most) ?? squares(instances);
  const columns = Math.floor((ROOM + gap) / (width + gap));
  return { width, height, gap, columns, total: Math.max(1, Math.ceil(instances / columns)) * (height + gap) - gap };
}

/** The largest squares of which so many fit, with gaps unless they are tiny. */
function squares(instances) {
  let side = Math.max(1, Math.floor(Math.sqrt((ROOM * HIGHEST) / instances)));
  while (side > 1 && Math.floor(ROOM / side) * Math.floor(HIGHEST / side) < instances) side -= 1;
  const gap = side > 3 ? 1 : 0;
  return [instances, side - gap, side - gap, gap];
}

// -- edges ------------------------------------------------------------------------------------------------------------

function edgeOf({ id, upstream, downstream, way }, places, isDown, status, operators, labels) {
  const points = way.map((key) => places.get(key));
  const end = isDown ? topOf(points.at(-1)) : leftOf(points.at(-1));
  const per = ratesOf(status, upstream, downstream);
  const unsent = Math.max(0, ...operators.get(upstream).instances.map((each) => each.unsent ?? 0));
  const held = unsent >= HELD;
  const lines = [per !== undefined && `${short(per)} rows/s`, held && `${short(unsent)} unsent`].filter(Boolean);
  return {
    id,
    held,
    path: pathOf(points, isDown),
    tip: isDown ? `M${end[0] - 5} ${end[1] - 8}h10l-5 8z` : `M${end[0] - 8} ${end[1] - 5}v10l8 -5z`,
    label: lines.length ? placed(points, isDown, lines, labels) : null,
    words: `${upstream} to ${downstream}: ${rate(per)}, at most ${count(unsent, "epoch")} of output not fetched yet`,
  };
}

function pathOf(points, isDown) {
  let path = "";
  for (let place = 1; place < points.length; place += 1) {
    const [from, to] = [points[place - 1], points[place]];
    const [[x1, y1], [x2, y2]] = isDown ? [bottomOf(from), topOf(to)] : [rightOf(from), leftOf(to)];
    const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
    path += `${place === 1 ? "M" : "L"}${x1} ${y1}`;
    path += isDown ? `C${x1} ${y} ${x2} ${y} ${x2} ${y2}` : `C${x} ${y1} ${x} ${y2} ${x2} ${y2}`;
  }
  return path;
}

const leftOf = ({ x, y, height }) => [x, y + height / 2];
const rightOf = ({ x, y, width, height }) => [x + width, y + height / 2];
const topOf = ({ x, y, width }) => [x + width / 2, y];
const bottomOf = ({ x, y, width, height }) => [x + width / 2, y + height];

function ratesOf(status, upstream, downstream) {
  const prefix = `${upstream}->${downstream}:`;
  const isOurs = (edge) => edge.startsWith(prefix) && /^\d+$/.test(edge.slice(prefix.length));
  const known = Object.entries(status?.edges ?? {}).filter(([edge]) => isOurs(edge));
  return known.length ? known.reduce((all, [, per]) => all + per, 0) : undefined;
}

/** Finds a place for the text of an edge, between its first two layers, where no other text is. */
function placed([from, to], isDown, lines, labels) {
  const [[x1, y1], [x2, y2]] = isDown ? [bottomOf(from), topOf(to)] : [rightOf(from), leftOf(to)];
  const width = 6.6 * Math.max(...lines.map((each) => each.length));
  const label = { x: (x1 + x2) / 2, y: (y1 + y2) / 2 + (isDown ? 4 : -8), width, height: LINE * lines.length, lines };
  while (labels.some((each) => overlap(each, label))) label.y += 8;
  labels.push(label);
  return label;
}

function overlap(one, other) {
  const across = Math.abs(one.x - other.x) < (one.width + other.width) / 2 + 4;
  return across && other.y - other.height < one.y + 2 && one.y - one.height < other.y + 2;
}

/** The lines of a text with their heights, the last one at its place. */
export function linesOf(label) {
  const last = (label?.lines.length ?? 0) - 1;
  return (label?.lines ?? []).map((text, place) => ({ text, place, x: label.x, y: label.y - LINE * (last - place) }));
}

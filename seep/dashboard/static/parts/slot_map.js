import { colour, element, setAttributes } from "../dom.js";
import { number, rate } from "../format.js";

/** Stops of the heat, from few rows to many: darker to lighter, so that it can be read without seeing colours. */
const HEAT = [
  [13, 26, 72],
  [44, 62, 120],
  [92, 96, 122],
  [138, 132, 112],
  [190, 172, 92],
  [253, 231, 55],
];
/** Colours between two stops. */
const STEPS = 64;
const OWNERS_HEIGHT = 18;
const GAP = 6;

/** Who owns which slots, and how many rows each has: the pure part of the map. */
export class SlotLoads {
  /** `told` is the answer to GET /slots, or an operator's `slots` of a report, which has no rows. */
  constructor({ slots, starts, owners, rows = [], hottest = null }) {
    this.slots = slots;
    this.starts = starts;
    this.owners = owners;
    this.rows = rows;
    this.hottest = hottest;
    this.buckets = rows.length || Math.min(slots, 4096);
    this.bucket = slots / this.buckets;
    this.most = rows.reduce((most, each) => Math.max(most, each), 0);
    this.total = rows.reduce((sum, each) => sum + each, 0);
  }

  get isCounted() {
    return this.total > 0;
  }

  /** The owner of a slot, by binary search in the runs. */
  ownerOf(slot) {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= slot) low = middle;
      else high = middle - 1;
    }
    return this.owners[low];
  }

  /** Owner, slots and rows per second of each instance, the one with most rows (or slots) first. */
  byOwner() {
    const found = new Map();
    this.owners.forEach((owner, at) => {
      const [first, end] = [this.starts[at], this.starts[at + 1] ?? this.slots];
      const sum = found.get(owner) ?? { owner, slots: 0, rows: 0 };
      found.set(owner, { owner, slots: sum.slots + end - first, rows: sum.rows + this.#rowsBetween(first, end) });
    });
    return [...found.values()].sort((a, b) => b.rows - a.rows || b.slots - a.slots || a.owner - b.owner);
  }

  /** The buckets with most rows: first and last slot, rows per second and owner of each. */
  hottestBuckets(most) {
    const chosen = this.rows.map((rows, at) => ({ rows, at })).filter(({ rows }) => rows > 0);
    chosen.sort((a, b) => b.rows - a.rows);
    return chosen.slice(0, most).map(({ rows, at }) => ({ rows, ...this.bucketAt(at) }));
  }

  bucketAt(at) {
    const first = Math.round(at * this.bucket);
    return { first, last: Math.round((at + 1) * this.bucket) - 1, owner: this.ownerOf(first) };
  }

  #rowsBetween(first, end) {
    let sum = 0;
    for (let at = Math.floor(first / this.bucket); at < this.rows.length && at * this.bucket < end; at += 1) {
      const begin = at * this.bucket;
      sum += (this.rows[at] * (Math.min(end, begin + this.bucket) - Math.max(first, begin))) / this.bucket;
    }
    return sum;
  }
}

/**
 * A map of slots on a canvas: one cell for each bucket of slots, as light as it has rows, and below it a strip in the
 * colours of the owners. The arrow keys, Home and End move a cursor, as the pointer does; `told` gets what is under it.
 */
export class SlotMap {
  #canvas;
  #told;
  #loads = null;
  #operator = "";
  #cursor = null;
  #frame = null;
  #grid = null;

  constructor(told) {
    this.#told = told;
    this.#canvas = element("canvas", {
      class: "slot-map",
      tabindex: "0",
      role: "slider",
      "aria-label": "Slots",
      "aria-valuemin": "0",
      "aria-valuenow": "0",
      on: {
        pointermove: (event) => this.#point(event),
        pointerdown: (event) => this.#point(event),
        pointerleave: () => this.#move(null),
        keydown: (event) => this.#press(event),
        blur: () => this.#move(null),
      },
    });
    this.node = this.#canvas;
    new ResizeObserver(() => this.#draw()).observe(this.#canvas);
  }

  show(operator, loads) {
    if (operator !== this.#operator) this.#cursor = null;
    this.#operator = operator;
    this.#loads = loads;
    this.#tell();
    this.#draw();
  }

  // -- pointer and keyboard -----------------------------------------------------------------------------------------

  #point(event) {
    if (!this.#grid) return;
    const { width, columns, cell, lines } = this.#grid;
    const line = Math.floor(event.offsetY / cell.height);
    if (line >= lines) {
      this.#move(Math.floor((event.offsetX / width) * this.#loads.buckets));
    } else {
      this.#move(line * columns + Math.min(columns - 1, Math.floor(event.offsetX / cell.width)));
    }
  }

  #press(event) {
    if (!this.#grid) return;
    const { columns } = this.#grid;
    const at = this.#cursor ?? 0;
    const moved = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns };
    const ends = { Home: 0, End: this.#loads.buckets - 1, Escape: null };
    const wanted = event.key in moved ? moved[event.key] : ends[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    this.#move(wanted);
  }

  #move(cursor) {
    this.#cursor = cursor === null ? null : Math.min(this.#loads.buckets - 1, Math.max(0, cursor));
    this.#tell();
    this.#draw();
  }

  #tell() {
    const at = this.#cursor ?? 0;
    const text = bucketText(this.#operator, this.#loads, at);
    const values = { "aria-valuemax": this.#loads.buckets - 1, "aria-valuenow": at, "aria-valuetext": text };
    setAttributes(this.#canvas, { ...values, "aria-label": `Slots of ${this.#operator}` });
    this.#told(this.#cursor === null ? null : text);
  }

  // -- drawing ------------------------------------------------------------------------------------------------------

  #draw() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      if (this.#loads && this.#canvas.clientWidth) this.#drawNow();
    });
  }

  #drawNow() {
    const width = this.#canvas.clientWidth;
    this.#grid = gridOf(this.#loads.buckets, width);
    const { cell, lines } = this.#grid;
    const context = this.#sized(width, lines * cell.height + GAP + OWNERS_HEIGHT);
    this.#drawCells(context);
    this.#drawOwners(context, lines * cell.height + GAP);
    if (this.#cursor !== null) this.#drawCursor(context);
  }

  #sized(width, height) {
    const density = devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * density), Math.round(height * density)];
    if (this.#canvas.width !== wide || this.#canvas.height !== high) {
      this.#canvas.width = wide;
      this.#canvas.height = high;
      this.#canvas.style.setProperty("height", `${height}px`);
    }
    const context = this.#canvas.getContext("2d");
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  #drawCells(context) {
    const { rows, most, buckets, isCounted } = this.#loads;
    const none = colour("--line");
    const inset = this.#grid.cell.width > 5 ? 1 : 0;
    for (let at = 0; at < buckets; at += 1) {
      context.fillStyle = isCounted ? heat(Math.sqrt(rows[at] / most)) : none;
      const { x, y, width, height } = cellAt(this.#grid, at);
      context.fillRect(x, y, width - inset, height - inset);
    }
  }

  #drawOwners(context, top) {
    const { starts, owners, slots } = this.#loads;
    const scale = this.#grid.width / slots;
    owners.forEach((owner, at) => {
      const [first, end] = [starts[at], starts[at + 1] ?? slots];
      context.fillStyle = colour(`--series-${owner % 10}`);
      context.fillRect(first * scale, top, Math.max(0.5, (end - first) * scale), OWNERS_HEIGHT);
    });
  }

  #drawCursor(context) {
    const { x, y, width, height } = cellAt(this.#grid, this.#cursor);
    context.lineWidth = 2;
    context.strokeStyle = colour("--text");
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    const scale = this.#grid.width / this.#loads.buckets;
    const top = this.#grid.lines * this.#grid.cell.height + GAP;
    context.strokeRect(this.#cursor * scale, top + 1, Math.max(2, scale), OWNERS_HEIGHT - 2);
  }
}

/** What is known of a bucket of slots, in words. */
export function bucketText(operator, loads, at) {
  const { first, last, owner } = loads.bucketAt(at);
  const slots = first === last ? `slot ${number(first)}` : `slots ${number(first)} to ${number(last)}`;
  const rows = loads.isCounted ? rate(loads.rows[at]) : "rows not counted";
  return `${slots}: owned by ${operator}[${owner}], ${rows}`;
}

/** Lines of as many cells as is a power of two, so that columns mean something: slots are prefixes of hashes. */
function gridOf(buckets, width) {
  const narrowest = buckets > 1024 ? 4 : 14;
  const columns = Math.min(buckets, 2 ** Math.max(0, Math.floor(Math.log2(width / narrowest))));
  const height = buckets > 1024 ? (columns > 64 ? 9 : 5) : 16;
  return { width, columns, lines: Math.ceil(buckets / columns), cell: { width: width / columns, height } };
}

function cellAt({ columns, cell }, at) {
  const [line, column] = [Math.floor(at / columns), at % columns];
  return { x: column * cell.width, y: line * cell.height, width: cell.width, height: cell.height };
}

const heats = Array.from({ length: (HEAT.length - 1) * STEPS + 1 }, (_, at) => between(at / STEPS));

function heat(part) {
  return heats[Math.round(Math.min(1, Math.max(0, part)) * (heats.length - 1))];
}

function between(place) {
  const low = Math.min(HEAT.length - 2, Math.floor(place));
  const mixed = HEAT[low].map((from, at) => Math.round(from + (HEAT[low + 1][at] - from) * (place - low)));
  return `rgb(${mixed.join(",")})`;
}

/** The scale of the heat, as a strip with its numbers. */
export class HeatScale {
  #canvas = element("canvas", { class: "heat-scale", width: "256", height: "1", "aria-hidden": "true" });
  #most = element("span");

  constructor() {
    this.node = element("p", { class: "muted heat-legend" }, "0 rows/s", this.#canvas, this.#most);
    const context = this.#canvas.getContext("2d");
    for (let x = 0; x < 256; x += 1) {
      context.fillStyle = heat(x / 255);
      context.fillRect(x, 0, 1, 1);
    }
  }

  show(loads) {
    this.node.hidden = !loads.isCounted;
    const unit = loads.bucket > 1 ? ` in ${number(loads.bucket)} slots` : " in one slot";
    this.#most.textContent = `${rate(loads.most)}${unit}; the strip below has the colours of the owners`;
  }
}

import { element, setChildren, setStyle, setText } from "../dom.js";
import { number } from "../format.js";

/** The most rows of a table; of more, a line below says how many are left out. */
const MOST = 100;

/**
 * A table that scrolls inside itself, and whose rows change in place.
 *
 * A column has a `head`, and `text(row)`; with `isNumber` it is aligned to the right; with `share(row)`, from 0 to 1, a
 * bar is drawn behind the text; with `colour(row)` a patch of colour before it; with `isLong` the text has many lines.
 */
export class Table {
  #columns;
  #body = element("tbody");
  #note = element("p", { class: "muted", hidden: true });
  #empty;
  #rows = [];

  constructor(caption, columns, { empty = "nothing" } = {}) {
    this.#columns = columns;
    this.#empty = empty;
    const head = element("thead", {}, element("tr", {}, columns.map(heading)));
    const table = element("table", { class: "table" }, element("caption", { class: "hidden-text" }, caption), head);
    table.append(this.#body);
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
    this.node = element("div", { class: "table-box" }, scroll, this.#note);
  }

  /** Shows the first rows; `made` makes what the columns need of a row, and is called for the shown ones only. */
  show(rows, made = (row) => row) {
    const shown = rows.slice(0, MOST).map(made);
    this.#setLength(shown.length);
    shown.forEach((row, at) => this.#rows[at].show(row));
    const more = rows.length > shown.length ? `and ${number(rows.length - shown.length)} more` : "";
    setText(this.#note, rows.length ? more : this.#empty);
    this.#note.hidden = !this.#note.textContent;
    this.node.firstChild.hidden = !rows.length;
  }

  #setLength(length) {
    while (this.#rows.length < length) {
      const row = new Row(this.#columns);
      this.#rows.push(row);
      this.#body.append(row.node);
    }
    for (const row of this.#rows.splice(length)) row.node.remove();
  }
}

class Row {
  #cells;

  constructor(columns) {
    this.#cells = columns.map((column) => new Cell(column));
    this.node = element(
      "tr",
      {},
      this.#cells.map((cell) => cell.node),
    );
  }

  show(row) {
    for (const cell of this.#cells) cell.show(row);
  }
}

class Cell {
  #column;
  #text = element("span");
  #bar;
  #patch;

  constructor(column) {
    this.#column = column;
    this.#bar = column.share ? element("span", { class: "share-fill", "aria-hidden": "true" }) : null;
    this.#patch = column.colour ? element("span", { class: "patch", "aria-hidden": "true" }) : null;
    this.node = element("td", { class: classesOf(column) || null }, this.#bar, this.#patch, this.#text);
  }

  show(row) {
    setText(this.#text, this.#column.text(row));
    if (this.#bar) setStyle(this.#bar, "width", `${100 * Math.min(1, Math.max(0, this.#column.share(row) || 0))}%`);
    if (this.#patch) setStyle(this.#patch, "background", this.#column.colour(row));
  }
}

/** A table of columns that are not known beforehand: `{name, type}` each, and rows of values. */
export function valueTable(caption, columns, rows) {
  const table = new Table(caption, columns.map(valueColumn));
  table.show(rows);
  return table.node;
}

function valueColumn({ name, type }, at) {
  const isNumber = /^(u?int|float|double|decimal|half|tinyint|smallint|bigint|hugeint|u[a-z]*int)/i.test(type);
  return { head: name, title: type, isNumber, isLong: !isNumber, text: (row) => valueText(row[at]) };
}

/** A value of a row as text; a text is shown as it is. */
export function valueText(value) {
  if (value === null || value === undefined) return "null";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function classesOf({ isNumber, share, isLong }) {
  return [isNumber && "number", share && "share", isLong && "long"].filter(Boolean).join(" ");
}

function heading(column) {
  const attributes = { scope: "col", class: column.isNumber ? "number" : null, title: column.title };
  return element("th", attributes, column.head);
}

/** Figures that are looked at first, each in a tile, changed in place. */
export class Tiles {
  #values = new Map();

  constructor() {
    this.node = element("dl", { class: "tiles" });
  }

  show(pairs) {
    if (pairs.length !== this.#values.size || pairs.some(([name]) => !this.#values.has(name))) this.#build(pairs);
    for (const [name, value] of pairs) setText(this.#values.get(name), value);
  }

  #build(pairs) {
    this.#values = new Map(pairs.map(([name]) => [name, element("dd", { class: "value" })]));
    const tile = ([name, value]) => element("div", { class: "tile" }, element("dt", {}, name), value);
    setChildren(this.node, ...[...this.#values].map(tile));
  }
}

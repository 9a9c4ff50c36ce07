/** The instances of the selected operator, by VM and node. */

import { natural, nodesAt } from "../cluster.js";
import { element, keyed, setText } from "../dom.js";
import { UNKNOWN, bytes, number, percent } from "../format.js";

/** The most rows. */
const ROWS = 200;
const COLUMNS = [
  ["instance", (each) => each.key],
  ["phase", (each) => (each.isWaiting ? "recovering" : each.phase ?? "")],
  ["busy", (each) => percent(each.utilisation)],
  ["rows/s in", (each) => number(each.rows_in_per_second)],
  ["rows/s out", (each) => number(each.rows_out_per_second)],
  ["waiting", (each) => number(each.waiting)],
  ["unsent", (each) => number(each.unsent)],
  ["state", (each) => bytes(each.state_bytes)],
  ["buffer", (each) => bytes(each.outbox_bytes)],
];
/** Columns before the figures. */
const TEXTS = 2;

/** Makes the table; `close` is called by its button. Returns its node, and `update(model, operators)`. */
export function makeInstanceTable(close) {
  const heading = element("h3");
  const body = element("tbody");
  const more = element("p", { class: "muted" });
  const headings = ["VM", "node", ...COLUMNS.map(([name]) => name)];
  const head = headings.map((name, place) => element("th", { scope: "col", class: isFigure(place - 2) }, name));
  const table = element("table", { class: "table" }, element("thead", {}, element("tr", {}, head)), body);
  const named = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Instances of the selected operator" };
  const button = element("button", { type: "button", class: "button", on: { click: close } }, "Close");
  const title = element("div", { class: "head" }, heading, button);
  const node = element("div", { class: "details", hidden: true }, title, element("div", named, table), more);

  function update(model, operators) {
    const of = operators.get(model.selected.operator);
    node.hidden = !of;
    if (!of) return;
    const vms = new Map(nodesAt(model.events, model.status, model.at).map((each) => [each.name, each.vm]));
    const place = (each) => `${vms.get(each.node) ?? ""} ${each.node ?? ""}`;
    const sorted = [...of.instances].sort((one, other) => natural(place(one), place(other)) || one.index - other.index);
    setText(heading, `Instances of ${of.name}, by VM and node`);
    keyed(body, sorted.slice(0, ROWS), (each) => each.key, makeRow, (row, each) => changeRow(row, each, vms));
    setText(more, sorted.length > ROWS ? `and ${number(sorted.length - ROWS)} more instances` : "");
  }

  return { node, update };
}

function isFigure(column) {
  return column >= TEXTS ? "number" : "";
}

function makeRow() {
  const cell = (place) => element(place ? "td" : "th", { scope: place ? null : "row", class: isFigure(place) });
  return element("tr", {}, element("td"), element("td"), COLUMNS.map((_, place) => cell(place)));
}

function changeRow(row, each, vms) {
  const texts = [vms.get(each.node) ?? UNKNOWN, each.node ?? UNKNOWN, ...COLUMNS.map(([, text]) => text(each))];
  texts.forEach((text, place) => setText(row.children[place], text));
}

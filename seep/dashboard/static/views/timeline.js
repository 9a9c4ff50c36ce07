/** Timelines: charts below each other, with a mark for every change. */

import { KINDS } from "../changes.js";
import { element, keyed, setAttributes, setStyle, setText } from "../dom.js";
import * as format from "../format.js";
import { chartsOf } from "../lines.js";
import { LEFT, RIGHT, changeChart, makeChart } from "../parts/chart.js";

export const title = "Timelines";

/** Marks that are closer than so many pixels are one. */
const CLOSE = 26;
const WINDOWS = [["all", "the whole run"], ["60", "one minute"], ["300", "five minutes"], ["3600", "one hour"]];
/** Kinds of change, the most important first: a mark of several has the sign of the first. */
const IMPORTANCE = [
  "failure", "recovery", "loss", "scaling", "migration", "drain", "balance", "plan", "savepoint", "checkpoint",
];
const EXPLAINED = ["scaling", "recovery", "migration", "balance", "checkpoint"];

export function mount(root, app) {
  root.className = "card";
  const options = WINDOWS.map(([value, name]) => element("option", { value }, name));
  const span = element("select", { class: "input", on: { change: () => app.store.changed() } }, options);
  const words = "Changes over time; arrows go from mark to mark";
  const marks = element("div", { class: "marks", role: "toolbar", "aria-label": words });
  const charts = element("div", { class: "charts" });
  const shown = element("label", { class: "check" }, "Show ", span);
  root.append(element("div", { class: "head" }, element("h2", {}, title), signs(), shown), marks, charts);
  const cache = { version: null, charts: [] };
  let last = null;
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    width = contentRect.width;
    if (last) draw(last);
  }).observe(charts);

  function draw(model) {
    last = model;
    if (!width) return;
    const [from, to] = windowOf(model, span.value);
    const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
    const frame = { model, width, from, to, x };
    const { series, latencies } = model;
    const version = [series.length, series.at(-1)?.at, latencies.length, latencies.at(-1)?.at].join(" ");
    if (cache.version !== version) Object.assign(cache, { version, charts: chartsOf(model, format) });
    drawMarks(marks, frame, app);
    const drawn = [version, from, to, width].join(" ");
    const make = () => makeChart(app.store.seek);
    keyed(charts, cache.charts, (each) => each.key, make, (node, each) => changeChart(node, each, frame, drawn));
  }

  return { update: draw };
}

function signs() {
  return element("div", { class: "legend" }, EXPLAINED.map((kind) => {
    const sign = element("b", { "aria-hidden": "true" }, KINDS[kind].sign);
    setStyle(sign, "color", `var(${KINDS[kind].colour})`);
    return element("span", {}, sign, KINDS[kind].title);
  }));
}

/** The times from and to which is shown: around the moment, or up to now. */
function windowOf(model, chosen) {
  const begin = model.begin;
  const end = Math.max(model.end, begin + 1);
  if (chosen === "all" || end - begin <= Number(chosen)) return [begin, end];
  const width = Number(chosen);
  const to = Math.min(end, Math.max(model.at + (model.isNow ? 0 : width / 4), begin + width));
  return [to - width, to];
}

function drawMarks(root, { model, from, to, x }, app) {
  const groups = [];
  for (const change of model.changes.filter(({ start }) => start >= from && start <= to)) {
    const place = x(change.start);
    if (groups.length && place - groups.at(-1).place < CLOSE) groups.at(-1).changes.push(change);
    else groups.push({ place, changes: [change] });
  }
  const make = () => makeMark(root, app);
  const change = (button, group) => changeMark(button, group, model.selected.change);
  keyed(root, groups, (each) => each.changes[0].id, make, change);
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
    const beside = { ArrowRight: button.nextElementSibling, ArrowLeft: button.previousElementSibling }[event.key];
    if (!beside) return;
    event.preventDefault();
    for (const each of root.children) each.setAttribute("tabindex", each === beside ? "0" : "-1");
    beside.focus();
  });
  return button;
}

function changeMark(button, { place, changes }, selected) {
  button.changes = changes;
  const kind = IMPORTANCE.find((each) => changes.some((change) => change.kind === each));
  const first = changes.find((each) => each.kind === kind);
  const others = changes.length > 1 ? `, and ${format.count(changes.length - 1, "other change")}` : "";
  const words = `${format.moment(first.start)}: ${first.title}${others}`;
  const isSelected = changes.some((each) => each.id === selected);
  setStyle(button, "left", `${place}px`);
  setStyle(button, "color", `var(${KINDS[kind].colour})`);
  setAttributes(button, { "aria-label": words, title: words, "aria-pressed": String(isSelected) });
  setText(button.parts.sign, KINDS[kind].sign);
  setText(button.parts.many, changes.length > 1 ? changes.length : "");
}

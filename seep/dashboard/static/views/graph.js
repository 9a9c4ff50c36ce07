/** The execution graph: operators in layers, their instances as cells, rates and back-pressure on the edges. */

import { element, keyed, setAttributes, svg } from "../dom.js";
import { operatorsOf, planOf } from "../parts/graph_plan.js";
import { changeBox, changeEdge, makeBox, makeEdge } from "../parts/graph_shapes.js";
import { makeInstanceTable } from "../parts/instance_table.js";

export const title = "Execution graph";

/** The smallest scale at which the text can be read; what is wider is scrolled. */
const SMALLEST = 0.8;
/** More instances than this change at once, without a transition. */
const MANY = 60;
const STEPS = ["below 25 %", "50 %", "70 %", "90 %", "above"];

export function mount(root, app) {
  root.className = "card";
  const words = "Execution graph: operators from the sources to the sinks";
  const drawing = svg("svg", { class: "graph-drawing", role: "group", "aria-label": words });
  const edges = svg("g");
  const boxes = svg("g");
  drawing.append(edges, boxes);
  const scrolls = { class: "graph-scroll scroll", tabindex: "0", role: "group", "aria-label": "Graph, scrolls" };
  const scroll = element("div", scrolls, drawing);
  const table = makeInstanceTable(() => choose(null));
  root.append(element("div", { class: "head" }, element("h2", {}, title), legend()), scroll, table.node);
  let last = null;
  let room = 0;
  new ResizeObserver(([{ contentRect }]) => {
    room = contentRect.width;
    if (last) draw(last);
  }).observe(scroll);

  function choose(operator) {
    const isChosen = app.store.model.selected.operator === operator;
    app.store.select({ operator: isChosen ? null : operator, instance: null });
  }

  function draw(model) {
    last = model;
    const operators = operatorsOf(model);
    const plan = planOf(model, operators, room);
    const scale = room ? Math.min(1, Math.max(SMALLEST, room / plan.width)) : 1;
    const [width, height] = [Math.floor(plan.width * scale), Math.floor(plan.height * scale)];
    const many = (model.status?.instances?.length ?? 0) > MANY;
    const viewBox = `0 0 ${plan.width} ${plan.height}`;
    setAttributes(drawing, { class: `graph-drawing${many ? " many" : ""}`, viewBox, width, height });
    keyed(edges, plan.edges, (each) => each.id, makeEdge, changeEdge);
    keyed(boxes, plan.boxes, (each) => each.name, (each) => makeBox(each, () => choose(each.name)), changeBox);
    table.update(model, operators);
  }

  return { update: draw };
}

function legend() {
  const swatch = (kind, text) => element("span", {}, element("i", { class: `swatch ${kind}` }), text);
  return element(
    "div",
    { class: "legend" },
    element("span", {}, "An instance, by its CPU share:"),
    STEPS.map((text, step) => swatch(`use-${step}`, text)),
    swatch("waiting", "recovering"),
    swatch("held", "held up"),
  );
}

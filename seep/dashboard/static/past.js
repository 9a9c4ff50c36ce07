/** The status of a past moment, made of the samples and events of the report. What these do not have is missing. */

import { count, names, number, percent, seconds } from "./format.js";

/** Seconds between two samples by which a rate is measured. */
const RATE_OVER = 1.5;
/** An instance that uses a larger part of its CPU share is full, unless the settings of the run say otherwise. */
export const FULL = 0.7;
/** Sources fall behind if they read less than this part of the rows that are due. */
const ENOUGH = 0.9;

/** Returns the place of the last item whose `at` is not later, or -1. */
export function placeAt(items, at) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].at <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** "counter[1]#3" → {operator: "counter", index: 1, name: "counter[1]"} */
export function identityOf(text) {
  const bracket = text.lastIndexOf("[");
  const end = text.indexOf("]", bracket);
  if (bracket < 0 || end < 0) return { operator: text, index: 0, name: text };
  return {
    operator: text.slice(0, bracket), index: Number(text.slice(bracket + 1, end)), name: text.slice(0, end + 1),
  };
}

/** Returns the status at a time; null before the first sample. `graph` has `operators` and `edges`. */
export function statusAt(series, events, graph, at) {
  const place = placeAt(series, at);
  if (place < 0) return null;
  const sample = series[place];
  const before = series[Math.max(0, placeAt(series, sample.at - RATE_OVER))];
  const instances = instancesOf(sample, before, new Set(recoveringAt(events, at).flatMap((each) => each.waiting)));
  const operators = operatorsOf(instances, Object.keys(graph.operators));
  return {
    ...sample,
    rows_read: sample.rows,
    in_flight: sample.epochs_in_flight,
    instances,
    operators,
    edges: sample.edges ?? edgesOf(operators, graph.edges),
  };
}

function instancesOf(sample, before, waiting) {
  const elapsed = sample.at - before.at;
  return Object.entries(sample.instances).map(([key, figures]) => {
    const earlier = before.instances[key];
    const per = (name) => (
      elapsed > 0 && earlier && name in figures ? (figures[name] - earlier[name]) / elapsed : undefined
    );
    const identity = identityOf(key);
    return {
      ...figures,
      ...identity,
      phase: waiting.has(identity.name) ? "recovering" : "running",
      rows_in_per_second: per("rows_in"),
      rows_out_per_second: per("rows_out"),
    };
  });
}

function operatorsOf(instances, order) {
  const groups = new Map(order.map((name) => [name, []]));
  for (const each of instances) {
    if (!groups.has(each.operator)) groups.set(each.operator, []);
    groups.get(each.operator).push(each);
  }
  return [...groups].filter(([, of]) => of.length).map(([name, of]) => ({
    name,
    instances: of.length,
    utilisation: Math.max(...of.map((each) => each.utilisation)),
    rows_in_per_second: total(of, "rows_in_per_second"),
    rows_out_per_second: total(of, "rows_out_per_second"),
    state_bytes: total(of, "state_bytes"),
    outbox_bytes: total(of, "outbox_bytes"),
    unsent: most(of, "unsent"),
    waiting: total(of, "waiting"),
  }));
}

function total(items, name) {
  const known = items.map((each) => each[name]).filter((each) => each !== undefined && each !== null);
  return known.length ? known.reduce((sum, each) => sum + each, 0) : undefined;
}

function most(items, name) {
  const known = items.map((each) => each[name]).filter((each) => each !== undefined && each !== null);
  return known.length ? Math.max(...known) : undefined;
}

/** The rates of the edges that can be told from the operators: those of an operator's only input. */
function edgesOf(operators, edges) {
  const found = {};
  for (const [upstream, downstream] of edges) {
    const into = operators.find((each) => each.name === downstream)?.rows_in_per_second;
    const isOnly = edges.filter((each) => each[1] === downstream).length === 1;
    if (isOnly && into) found[`${upstream}->${downstream}:0`] = into;
  }
  return found;
}

/** Returns the losses of nodes that are not healed at a time: {node, at, waiting: [instances]}. */
export function recoveringAt(events, at) {
  const open = new Map();
  for (const event of events) {
    if (event.at > at) break;
    const kind = event.kind;
    if (kind === "killed" || kind === "node lost") {
      const hosted = event.hosted ?? open.get(event.node)?.waiting ?? [];
      const since = open.get(event.node)?.at ?? event.at;
      open.set(event.node, { node: event.node, at: since, waiting: [...hosted] });
    } else if (kind === "rebound" && event.lost) {
      const loss = open.get(event.lost) ?? { node: event.lost, at: event.at, waiting: [] };
      open.set(event.lost, loss);
      if (!loss.waiting.includes(event.instance)) loss.waiting.push(event.instance);
    } else if (kind === "recovered" || kind === "retired") {
      for (const loss of open.values()) loss.waiting = loss.waiting.filter((each) => each !== event.instance);
    }
    for (const [node, loss] of open) {
      if (!loss.waiting.length) open.delete(node);
    }
  }
  return [...open.values()];
}

/** Returns in sentences what was wrong at a time, as far as the report tells; see seep/reports/health.py. */
export function wrongAt(status, events, at) {
  const found = [];
  const failed = events.find((each) => each.kind === "failed" && each.at <= at);
  if (failed) found.push(`the run has failed: ${failed.detail ?? ""}`);
  for (const loss of recoveringAt(events, at)) {
    const waiting = `${count(loss.waiting.length, "instance")} not recovered yet: ${names(loss.waiting)}`;
    found.push(`node ${loss.node} was lost ${seconds(Math.max(at - loss.at, 0))} before; ${waiting}`);
  }
  if (!status) return found;
  const full = status.instances.filter((each) => each.utilisation > (status.full ?? FULL)).sort(
    (one, other) => other.utilisation - one.utilisation
  );
  if (full.length) {
    const told = full.map((each) => `${each.name} on ${each.node} is busy ${percent(each.utilisation)}`);
    found.push(`${count(full.length, "full instance")}: ${names(told)}`);
  }
  if (status.rows_per_second < ENOUGH * status.offered) {
    const due = `${number(status.offered)} rows/s are due`;
    found.push(`sources fall behind: ${due}, and ${number(status.rows_per_second)} rows/s are read`);
  }
  if (status.window && status.in_flight >= status.window) {
    found.push(`${count(status.in_flight, "epoch")} in flight, as many as may be, so sources wait`);
  }
  return found;
}

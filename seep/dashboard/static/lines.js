/** The lines of the timelines: points over time, made of the samples of a run. */

import { identityOf } from "./past.js";

/** The most lines of a chart. */
const LINES = 10;
const byOperator = new WeakMap();

/** Returns the charts with their lines: {name, colour, dash, points: [[at, value]]}. */
export function chartsOf(model, format) {
  const { series, latencies, run } = model;
  const operators = Object.keys(run.operators);
  const last = series.at(-1);
  const line = (name, place, of, items = series) => ({ name, place, points: pointsOf(items, of) });
  const rows = [line("in", 0, (each) => each.rows_per_second)];
  if (series.some((each) => each.offered)) rows.push(line("due", 1, (each) => each.offered));
  if (last && "rows_out_per_second" in last) rows.push(line("out", 2, (each) => each.rows_out_per_second));
  const percentiles = ["p50", "p99", "max"].map((name, place) => line(name, place, (each) => each[name], latencies));
  const instances = operators.map((name, place) => line(name, place, (each) => (counted(each).size ? counted(each).get(name)?.count ?? 0 : null)));
  const changed = instances.filter((each) => new Set(each.points.map(([, value]) => value)).size > 1);
  const busy = operators.map((name, place) => line(name, place, (each) => counted(each).get(name)?.busiest));
  return [
    { name: "Rows per second", lines: rows, format: format.number, axis: format.short },
    { name: "Latency, from due to committed", lines: percentiles, format: format.seconds, axis: format.seconds, log: true },
    { name: changed.length ? "Instances, where their number changed" : "Instances", lines: (changed.length ? changed : instances).slice(0, LINES), format: format.number, axis: format.short, steps: true },
    { name: "Busiest instance, of its CPU share", lines: busy.slice(0, LINES), format: format.percent, axis: format.percent, limit: 1 },
    { name: "VMs", lines: vmsOf(series, line), format: format.number, axis: format.short, steps: true },
  ];
}

function vmsOf(series, line) {
  const states = [...new Set(series.flatMap((each) => Object.keys(each.vms ?? {})))];
  if (!states.length) return [line("nodes", 0, (each) => each.nodes)];
  return states.map((state, place) => line(state, place, (each) => each.vms[state] ?? 0));
}

function pointsOf(items, of) {
  const points = [];
  for (const each of items) {
    const value = of(each);
    if (value !== undefined && value !== null && Number.isFinite(value)) points.push([each.at, value]);
  }
  return points;
}

/** By operator the number of instances in a sample, and the use of the busiest. */
function counted(sample) {
  let found = byOperator.get(sample);
  if (!found) {
    found = new Map();
    for (const [key, { utilisation }] of Object.entries(sample.instances)) {
      const { operator } = identityOf(key);
      const of = found.get(operator);
      if (of) Object.assign(of, { count: of.count + 1, busiest: Math.max(of.busiest, utilisation) });
      else found.set(operator, { count: 1, busiest: utilisation });
    }
    byOperator.set(sample, found);
  }
  return found;
}

/** Leaves of the points in a window of time, and the ones beside it, at most a lowest and a highest per pixel. */
export function thinned(points, from, to, pixels) {
  const first = Math.max(0, points.findIndex(([at]) => at >= from) - 1);
  const inside = points.slice(first).filter(([at], place, all) => at <= to || all[place - 1]?.[0] <= to);
  if (inside.length <= 3 * pixels) return inside;
  const kept = [];
  let bucket = [];
  const flush = () => {
    if (!bucket.length) return;
    const low = bucket.reduce((one, other) => (other[1] < one[1] ? other : one));
    const high = bucket.reduce((one, other) => (other[1] > one[1] ? other : one));
    kept.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
    bucket = [];
  };
  let column = null;
  for (const point of inside) {
    const own = Math.floor(((point[0] - from) / (to - from)) * pixels);
    if (own !== column) flush();
    column = own;
    bucket.push(point);
  }
  flush();
  return kept;
}

/** Round numbers on an axis, and how to place values on it. */
export function axisOf(values, log, limit = 0) {
  const known = values.filter((each) => each > 1e-9);
  if (!log) {
    const high = Math.max(limit, 1.05 * Math.max(0, ...known)) || 1;
    return { at: (value) => Math.min(Math.max(value / high, 0), 1), ticks: roundNumbers(0, high, 3) };
  }
  const low = Math.floor(Math.log10(Math.min(1, ...known)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(1e-6, ...known))), low + 1);
  const ticks = Array.from({ length: high - low + 1 }, (_, place) => 10 ** (low + place));
  const at = (value) => Math.min(Math.max((Math.log10(Math.max(value, 1e-12)) - low) / (high - low), 0), 1);
  return { at, ticks: ticks.length > 5 ? ticks.filter((_, place) => place % 2 === 0) : ticks };
}

/** Round numbers from low to high, about as many as wanted. */
export function roundNumbers(low, high, wanted) {
  const least = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * (1 - 1e-9));
  const found = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high * (1 + 1e-9); number += 1) found.push(number * step);
  return found;
}

/** The lines of the timelines: points over time, made of the samples of a run. */

import { identityOf, placeAt } from "./past.js";

/** The most lines of a chart. */
const LINES = 10;
const byOperator = new WeakMap();

/** Returns the charts with their lines: {name, place, points: [{at, value}]}, where `place` is that of its colour. */
export function chartsOf(model, format) {
  const { number, percent, seconds, short } = format;
  const instances = instancesOf(model);
  const isChanging = instances.some(changes);
  return [
    { key: "rows", name: "Rows per second", lines: ratesOf(model.series), format: number, axis: short },
    {
      key: "latency",
      name: "Latency, from due to committed",
      lines: ["p50", "p99", "max"].map((name, place) => line(name, place, model.latencies, (each) => each[name])),
      format: seconds,
      axis: seconds,
      log: true,
    },
    {
      key: "instances",
      name: isChanging ? "Instances, where their number changed" : "Instances",
      lines: (isChanging ? instances.filter(changes) : instances).slice(0, LINES),
      format: number,
      axis: short,
      steps: true,
    },
    {
      key: "busy",
      name: "Busiest instance, of its CPU share",
      lines: busyOf(model),
      format: percent,
      axis: percent,
      limit: 1,
    },
    { key: "vms", name: "VMs", lines: vmsOf(model.series), format: number, axis: short, steps: true },
  ];
}

function line(name, place, items, valueOf) {
  const points = items.map((each) => ({ at: each.at, value: valueOf(each) }));
  return { name, place, points: points.filter(({ value }) => Number.isFinite(value)) };
}

function changes({ points }) {
  return points.some(({ value }) => value !== points[0].value);
}

function ratesOf(series) {
  const found = [line("in", 0, series, (each) => each.rows_per_second)];
  if (series.some((each) => each.offered)) found.push(line("due", 1, series, (each) => each.offered));
  found.push(line("out", 2, series, (each) => each.rows_out_per_second));
  return found.filter((each) => each.points.length);
}

function instancesOf({ run, series }) {
  return Object.keys(run.operators).map((name, place) => {
    // before an instance has reported for the first time, nothing is known of the operator
    const first = series.findIndex((each) => counted(each).has(name));
    return line(name, place, first < 0 ? [] : series.slice(first), (each) => counted(each).get(name)?.count ?? 0);
  });
}

function busyOf({ run, series }) {
  const names = Object.keys(run.operators).slice(0, LINES);
  return names.map((name, place) => line(name, place, series, (each) => counted(each).get(name)?.busiest));
}

function vmsOf(series) {
  const states = [...new Set(series.flatMap((each) => Object.keys(each.vms ?? {})))];
  if (!states.length) return [line("nodes", 0, series, (each) => each.nodes)];
  return states.map((state, place) => line(state, place, series, (each) => each.vms[state] ?? 0));
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
  const inside = points.slice(Math.max(0, placeAt(points, from)), placeAt(points, to) + 2);
  if (inside.length <= 3 * pixels) return inside;
  const columns = new Map();
  for (const point of inside) {
    const column = Math.floor(((point.at - from) / (to - from)) * pixels);
    const of = columns.get(column);
    if (of === undefined) columns.set(column, { low: point, high: point });
    else if (point.value < of.low.value) of.low = point;
    else if (point.value > of.high.value) of.high = point;
  }
  return [...columns.values()].flatMap(({ low, high }) =>
    low === high ? [low] : low.at < high.at ? [low, high] : [high, low]);
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
  for (
    let number = Math.ceil(low / step - 1e-9); number * step <= high * (1 + 1e-9); number += 1
  ) found.push(number * step);
  return found;
}

/** Changes of a run, for cards and marks: the traces of the report with phases, bytes, and the latency they cost. */

import { names, number, seconds } from "./format.js";
import { placeAt } from "./past.js";

/** Seconds before a change whose latency counts as the usual one, and after it in which it still costs. */
const BEFORE = 10;
const AFTER = 1;

/** Kinds of change: their name, the sign of their marks, and their variable of the style sheet. */
export const KINDS = {
  scaling: { title: "Scaling", sign: "▲", colour: "--mark-scaling" },
  recovery: { title: "Recovery", sign: "✚", colour: "--mark-recovery" },
  loss: { title: "Loss of an idle node", sign: "✕", colour: "--mark-recovery" },
  migration: { title: "Migration", sign: "◆", colour: "--mark-migration" },
  balance: { title: "Balance", sign: "■", colour: "--mark-balance" },
  drain: { title: "Drain", sign: "▼", colour: "--mark-migration" },
  plan: { title: "Plan", sign: "◇", colour: "--mark-migration" },
  checkpoint: { title: "Checkpoint", sign: "●", colour: "--mark-checkpoint" },
  savepoint: { title: "Savepoint", sign: "★", colour: "--mark-checkpoint" },
  failure: { title: "Failure", sign: "✖", colour: "--bad" },
};

/** What each phase is. */
export const PHASES = {
  decided: "from the decision until slots began to move",
  sealed: "until every node knew the new owners",
  effective: "until the first epoch of the new owners was open",
  transfer: "state on its way to a new owner",
  safe: "until old and new owners were backed up",
  detected: "until the loss was noticed",
  restored: "until lost instances had their state again",
  replayed: "until the sinks were where they would have been",
  stored: "until all parts were in storage",
};

/** Returns all changes, oldest first. `latencies` are points with `at`, `p50` and `max`. */
export function changesOf(spans, events, latencies) {
  const found = [...traces(spans)].map((spans) => change(spans, latencies));
  const known = new Set(found.filter((each) => each.kind === "recovery").map((each) => each.node));
  for (const event of events) {
    if (event.kind === "node lost" && !known.has(event.node)) found.push(idleLoss(event, latencies));
    if (event.kind === "failed") found.push(failure(event));
  }
  return found.sort((one, other) => one.start - other.start);
}

function* traces(spans) {
  const groups = new Map();
  for (const span of spans) {
    if (!groups.has(span.trace)) groups.set(span.trace, []);
    groups.get(span.trace).push(span);
  }
  for (const group of groups.values()) if (group.some((each) => !each.parent)) yield group;
}

function change(spans, latencies) {
  const root = spans.find((each) => !each.parent);
  const told = root.attributes;
  const made = {
    id: root.trace,
    kind: root.name in KINDS ? root.name : "plan",
    start: root.start,
    end: root.end ?? null,
    status: root.end === undefined ? "open" : root.status,
    reason: root.reason ?? "",
    why: told.why ?? "",
    operator: told.operator,
    node: told.node,
    attributes: told,
    instances: [
      ...new Set(spans.flatMap((each) => [each.attributes.instance, each.attributes.instances]).flat().filter(Boolean))
    ],
    bytes: bytesOf(spans),
    slots: told.slots_moved ?? sum(spans.filter((each) => each.name === "plan"), "slots") ?? told.slots,
    phases: phasesOf(root, spans),
    cost: costOf(root.start, root.end ?? Infinity, latencies),
  };
  return { ...made, title: titleOf(made), lost: lossOf(made) };
}

function bytesOf(spans) {
  const told = spans[0].attributes.bytes;
  return told ?? sum(spans.filter((each) => each.name === "plan" && each.parent), "bytes");
}

function sum(spans, name) {
  const known = spans.map((each) => each.attributes[name]).filter((each) => typeof each === "number");
  return known.length ? known.reduce((one, other) => one + other, 0) : undefined;
}

/** The phases by name: their intervals, and how long at least one of them lasted. */
function phasesOf(root, spans) {
  const found = new Map();
  for (const span of spans) {
    const name = span === root && spans.length === 1 && /point$/.test(root.name) ? "stored" : span.name;
    if (!(name in PHASES) || span.end === undefined) continue;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push([span.start, span.end]);
  }
  return Object.keys(PHASES).filter((name) => found.has(name)).map((name) => {
    const intervals = joined(found.get(name));
    return { name, intervals, seconds: intervals.reduce((all, [start, end]) => all + end - start, 0) };
  });
}

function joined(intervals) {
  const found = [];
  for (const [start, end] of intervals.sort((one, other) => one[0] - other[0])) {
    const last = found.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else found.push([start, end]);
  }
  return found;
}

/** Leaves of some latencies those of single epochs, if there are any. */
export function exact(latencies) {
  const found = latencies.filter((each) => !each.isRecent);
  return found.length ? found : latencies;
}

/** The usual latency before a change, and the highest during it; null where there is no point. */
export function costOf(start, end, latencies) {
  const before = latencies.slice(placeAt(latencies, start - BEFORE) + 1, placeAt(latencies, start) + 1);
  const during = exact(latencies.slice(placeAt(latencies, start) + 1, placeAt(latencies, end + AFTER) + 1));
  if (!during.length) return null;
  const usual = before.map((each) => each.p50).sort((one, other) => one - other)[before.length >> 1];
  return { usual: usual ?? null, most: Math.max(...during.map((each) => each.max ?? each.p99)) };
}

function titleOf({ kind, status, operator, node, instances, attributes, reason }) {
  const done = status === "ok";
  const open = status === "open" || status === "unset";
  const isNumbered = "before" in attributes && "after" in attributes;
  const numbers = isNumbered ? ` ${attributes.before} → ${attributes.after}` : "";
  switch (kind) {
    case "scaling":
      return done
        ? `Scaled ${operator}${numbers}`
        : open
        ? `Scaling ${operator}${numbers}`
        : `Did not scale ${operator}${numbers}`;
    case "recovery":
      return `Lost node ${node}, ${done ? "recovered" : open ? "recovering" : "not recovered:"} ${names(instances)}`;
    case "migration":
      return `${done ? "Migrated" : open ? "Migrating" : "Did not finish migrating"} slots of ${operator}`;
    case "balance":
      if (!done) return `${open ? "Balancing" : "Did not balance"} ${operator}`;
      return `Balanced ${operator}${isNumbered ? imbalance(attributes) : ""}`;
    case "drain":
      return `${done ? "Drained" : open ? "Draining" : "Did not drain"} node ${node}`;
    case "checkpoint":
    case "savepoint":
      return done
        ? `Stored ${kind}${"id" in attributes ? ` ${attributes.id}` : ""}`
        : `Could not store a ${kind}: ${reason}`;
  }
  return `Moved slots of ${operator}`;
}

function imbalance({ before, after }) {
  return `: the fullest instance had ${number(before, 2)} times the mean, now ${number(after, 2)}`;
}

function lossOf({ kind, status }) {
  if (kind === "recovery") {
    if (status === "ok") return "No row: state came back from a backup, and what came after it was replayed.";
    return status === "error" ? "See why it failed." : "Not known before it has recovered.";
  }
  if (kind === "checkpoint" || kind === "savepoint") return status === "error"
    ? "Nothing now; a restart would begin from the one before."
    : "";
  return status === "error"
    ? "Nothing: the slots stayed where they were, or whole steps have moved."
    : "No row: slots move between two epochs.";
}

/** What changes without a trace have in common: one moment. */
function momentary(id, kind, event) {
  const [start, why] = [event.at, event.why ?? event.detail ?? ""];
  return { id, kind, start, end: start, why, reason: "", attributes: {}, instances: [], phases: [], cost: null };
}

function idleLoss(event, latencies) {
  return {
    ...momentary(`loss-${event.node}`, "loss", event),
    status: "ok",
    node: event.node,
    cost: costOf(event.at, event.at, latencies),
    title: `Lost node ${event.node}, which hosted nothing`,
    lost: "Nothing: it hosted no instance.",
  };
}

function failure(event) {
  return {
    ...momentary(`failed-${event.at}`, "failure", event),
    status: "error",
    title: "The run has failed",
    lost: "What was not committed is read again by a run that continues.",
  };
}

/** A sentence about the latency that a change cost. */
export function costWords(cost) {
  if (!cost) return "No epoch was committed meanwhile.";
  const usual = cost.usual === null ? "" : `, ${seconds(cost.usual)} in the middle before`;
  return `Up to ${seconds(cost.most)}${usual}.`;
}

/** How long a change took, or takes. */
export function tookWords({ start, end }, now) {
  return end === null ? `for ${seconds(Math.max(now - start, 0))} so far` : seconds(end - start);
}

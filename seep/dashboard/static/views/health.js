/** Health: whether anything is wrong now, in words, and the figures that a person on call looks at first. */

import { plainName } from "../cluster.js";
import { element, keyed, setAttributes, setText } from "../dom.js";
import { UNKNOWN, bytes, count, cut, moment, number, percent, seconds, short } from "../format.js";
import { FULL } from "../past.js";

export const title = "Health";

/** The most sentences that are shown. */
const SENTENCES = 8;
const LOST = "Not known: the page has lost its connection. This was the last news:";
const GOOD = ["good", "✓"];
const ENDED = {
  finished: "Finished: all input is processed and committed",
  halted: "Stopped before the end of its input",
  stopped: "Stopped",
};

/** The figures of a moment: their name, their value, what belongs to it, and how bad it is. */
const TILES = [
  [
    "Rows/s in", (status) => number(status.rows_per_second),
    (status) => (status.offered ? `${number(status.offered)} due` : ""), behind,
  ],
  ["Rows/s out", (status) => number(status.rows_out_per_second), (status) => `${short(status.rows_read)} rows read`],
  ["Latency p50", (status) => seconds(status.latency?.p50), () => "due to committed"],
  ["Latency p99", (status) => seconds(status.latency?.p99), (status) => `max ${seconds(status.latency?.max)}`],
  [
    "Epochs in flight", (status) => number(inFlight(status)),
    (status) => (status.window ? `at most ${number(status.window)}` : ""), windowFull,
  ],
  ["Since last commit", (status) => seconds(status.since_commit), watermark],
  [
    "Instances", (status) => number(status.instances?.length),
    (status) => count(status.operators?.length ?? 0, "operator"),
  ],
  ["Nodes", (status) => number(status.nodes), (status) => `${number(status.idle_nodes)} idle`],
  [
    "State", (status) => bytes(
      sum(status, "state_bytes")
    ), (status) => `${bytes(sum(status, "outbox_bytes"))} buffered`,
  ],
  [
    "Busiest instance", (status) => percent(busiest(status)?.utilisation),
    (status) => cut(plainName(busiest(status)?.name ?? ""), 24), full,
  ],
];

/** The figures of a run that is over. */
const WHOLE = [
  ["Rows", (summary) => number(summary.rows), (summary) => `in ${moment(summary.seconds)}`],
  ["Rows/s on average", (summary) => number(summary.rows_per_second), () => "read by the sources"],
  ["Latency p50", (summary) => seconds(summary.latency?.p50), () => "of all epochs"],
  ["Latency p99", (summary) => seconds(summary.latency?.p99), (summary) => `max ${seconds(summary.latency?.max)}`],
  ["Epochs", (summary) => number(summary.epochs), () => "committed"],
  ["Longest pause", (summary) => seconds(summary.largest_gap), () => "between two commits"],
  ["Scalings", (summary) => number(summary.scalings?.length), () => ""],
  ["Recoveries", (summary) => number(summary.recoveries?.length), () => "of instances"],
  ["Left out", (summary) => number(leftOut(summary)), () => "late, shed, dead letters"],
  [
    "VM time", (summary) => `${number(summary.vm_seconds)} s`,
    (summary) => count(Object.keys(summary.vms ?? {}).length, "VM"),
  ],
];

export function mount(root, app) {
  root.classList.add("health");
  const sign = element("span", { class: "sign", "aria-hidden": "true" });
  const words = element("span", { role: "status" });
  const heading = element("h2", {}, words);
  const sentences = element("ul");
  const verdict = element("div", { class: "verdict" }, sign, heading, sentences);
  const tiles = TILES.map(([name]) => {
    const value = element("dd", { class: "value" });
    const more = element("dd", { class: "more" });
    const title = element("dt", {}, name);
    return { title, value, more, node: element("div", { class: "tile" }, title, value, more) };
  });
  root.append(verdict, element("dl", { class: "tiles" }, tiles.map((tile) => tile.node)));

  function update(model) {
    const [kind, mark, told] = verdictOf(model);
    setAttributes(verdict, { class: `verdict ${kind}` });
    setText(sign, mark);
    setText(words, told);
    const wrong = isOver(model) ? [] : model.wrong.slice(0, SENTENCES);
    const more = model.wrong.length - wrong.length;
    if (wrong.length && more) wrong.push(`and ${number(more)} more`);
    keyed(sentences, wrong, (each) => each, (each) => element("li", {}, each), () => {});
    sentences.hidden = wrong.length === 0;
    const isWhole = model.isNow && !model.live && model.report?.summary;
    const figures = isWhole ? model.report.summary : model.status;
    (isWhole ? WHOLE : TILES).forEach(([name, figure, told, level], place) => {
      const tile = tiles[place];
      setText(tile.title, name);
      setText(tile.value, figures ? figure(figures) : UNKNOWN);
      setText(tile.more, figures ? told(figures) : "");
      setAttributes(tile.value, { class: `value ${figures && level ? level(figures) : ""}` });
    });
  }

  return { update };
}

/** Returns how good it is, its sign, and the words. */
function verdictOf(model) {
  const { phase, failure, wrong, isNow, live, connection } = model;
  if (isNow && phase === "failed") return ["bad", "✖", `The run has failed: ${failure}`];
  if (isOver(model)) return [...(phase === "finished" ? GOOD : ["warn", "■"]), ENDED[phase] ?? ENDED.stopped];
  if (live && connection.state === "lost") return ["warn", "?", LOST];
  const [is, are, then] = isNow ? ["is", "are", "now"] : ["was", "were", "then"];
  if (wrong.length === 1) return ["bad", "!", `One thing ${is} wrong ${then}`];
  if (wrong.length) return ["bad", "!", `${number(wrong.length)} things ${are} wrong ${then}`];
  if (isNow && phase === "starting") return [...GOOD, "Starting"];
  return [...GOOD, `Healthy: nothing ${is} wrong${isNow ? "" : " then"}`];
}

/** Whether the end of a run that is over is shown, when nothing can be wrong any more. */
function isOver({ isNow, live }) {
  return isNow && !live;
}

/** The number of epochs that are open and not committed. */
export function inFlight(status) {
  return status.in_flight ?? (status.ticked === undefined ? undefined : status.ticked - status.committed);
}

function behind(status) {
  return status.offered && status.rows_per_second < 0.9 * status.offered ? "bad" : "";
}

function busiest(status) {
  return status.instances?.reduce((one, other) => (other.utilisation > (one?.utilisation ?? -1) ? other : one), null);
}

function full(status) {
  return (busiest(status)?.utilisation ?? 0) > (status.full ?? FULL) ? "warn" : "";
}

function leftOut({ counters = {} }) {
  return ["late", "shed", "dead_letters"].reduce((all, name) => all + (counters[name] ?? 0), 0);
}

function windowFull(status) {
  return status.window && inFlight(status) >= status.window ? "bad" : "";
}

function watermark(status) {
  const told = [status.watermark_behind, ...(status.operators ?? []).map((each) => each.watermark_behind)];
  const known = told.filter((each) => each !== null && each !== undefined);
  return known.length ? `watermark ${number(Math.max(...known))} behind` : "no watermark";
}

function sum(status, name) {
  return status.instances?.reduce((all, each) => all + (each[name] ?? 0), 0);
}

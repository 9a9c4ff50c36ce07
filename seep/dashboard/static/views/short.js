/** In short: four sentences with what a person on call asks first. */

import { costWords, exact, tookWords } from "../changes.js";
import { plainName } from "../cluster.js";
import { element, keyed, setAttributes, setChildren, setText } from "../dom.js";
import { count, moment, names, number, percent, seconds } from "../format.js";
import { placeAt, recoveringAt, statusAt } from "../past.js";

export const title = "In short";

/** Seconds before a high latency in which a bottleneck may have been its reason. */
const REASON = 10;
const FAILED = "The run has failed. What was not committed is not in its output; a run that continues reads it again.";

export function mount(root, app) {
  root.className = "card short";
  const list = element("dl");
  const heading = element("h2");
  root.append(heading, list);

  function make({ question }) {
    const answer = element("dd");
    const text = element("span");
    const show = element("button", { type: "button", class: "button quiet" }, "show");
    show.addEventListener("click", () => app.select({ change: show.dataset.change }));
    answer.append(text, " ", show);
    return element("div", { class: "pair", style: { display: "contents" } }, element("dt", {}, question), answer);
  }

  function change(pair, { question, text, change }) {
    const [words, show] = pair.querySelector("dd").children;
    setText(words, text);
    setAttributes(show, { hidden: !change, "data-change": change ?? "", "aria-label": `Show the change. ${question}` });
  }

  function update(model) {
    setText(heading, model.live ? "In short" : "In short, of the whole run");
    keyed(list, answersOf(model), (each) => each.question, make, change);
  }

  return { update };
}

/** Returns the questions with their answers, and the change that an answer is about. */
export function answersOf(model) {
  return [
    { question: "What is slow?", ...slow(model) },
    { question: "Why did it scale?", ...scaled(model) },
    { question: "Did it lose anything?", ...lost(model) },
    { question: "What did the loss of a node cost?", ...loss(model) },
  ];
}

// -- what is slow ----------------------------------------------------------------------------------------------------

function slow(model) {
  const worst = worstLatency(model);
  const now = model.live
    ? `${busiest(model.newest, "is")}. Latency p99 is ${seconds(model.newest?.latency?.p99)}.`
    : "";
  if (!worst) return { text: `${now} No epoch is committed yet.`.trim() };
  const change = model.changes.find(
    (each) => each.start <= worst.at && worst.at <= (each.end ?? Infinity) + 1 && each.kind !== "checkpoint"
  );
  const reason = change ? `during “${change.title}”` : bottleneck(model, worst.at);
  const told = `The highest latency ${model.live ? "so far " : ""}was ${seconds(worst.most)} at ${moment(worst.at)},`;
  return { text: `${now} ${told} ${reason}.`.trim(), change: change?.id };
}

function worstLatency({ latencies }) {
  let worst = null;
  for (const each of exact(latencies)) {
    const most = each.max ?? each.p99;
    if (!worst || most > worst.most) worst = { at: each.at, most };
  }
  return worst;
}

function bottleneck(model, at) {
  const found = model.events.slice(0, placeAt(model.events, at + 1) + 1).reverse().find(
    (each) => each.kind === "bottleneck" && at - each.at < REASON
  );
  if (found) return `when ${found.instance} was a bottleneck (${found.why ?? found.detail})`;
  return `when ${busiest(statusAt(model.series, model.events, model.run, at), "was")}`;
}

function busiest(status, is) {
  const found = status?.instances?.reduce(
    (one, other) => (other.utilisation > (one?.utilisation ?? -1) ? other : one), null,
  );
  return found
    ? `${plainName(found.name)} ${is} the busiest instance, at work for ${percent(found.utilisation)} of its CPU share`
    : `no instance ${is} busy`;
}

// -- why did it scale ------------------------------------------------------------------------------------------------

function scaled({ changes, end }) {
  const all = changes.filter((each) => each.kind === "scaling");
  const last = all.at(-1);
  if (!last) return { text: "It did not: no operator was scaled." };
  const others = all.length > 1 ? ` (the last of ${number(all.length)} scalings)` : "";
  const isRefused = last.status === "error";
  const result = isRefused ? `It was not carried out: ${last.reason}.` : `It took ${tookWords(last, end)}.`;
  const text = `${last.title} at ${moment(last.start)}${others}. The reason: ${last.why || "a request"}. ${result}`;
  return { text, change: last.id };
}

// -- did it lose anything --------------------------------------------------------------------------------------------

function lost(model) {
  const left = leftOut(model);
  const told = left.length ? `But ${left.join(", ")}.` : "No row was late, shed, or a dead letter.";
  if (model.phase === "failed") return { text: `${FAILED} ${told}` };
  const waiting = model.live ? recoveringAt(model.events, model.end).flatMap((each) => each.waiting) : [];
  if (waiting.length) return {
    text: `Not known before ${names(waiting)} ${waiting.length === 1 ? "has" : "have"} recovered. ${told}`
  };
  const recoveries = model.changes.filter((each) => each.kind === "recovery").length;
  const through = recoveries ? `, also through the loss of ${count(recoveries, "node")}` : "";
  const rows = model.newest?.rows_read ?? model.report?.summary?.rows;
  return { text: `No: each of ${number(rows)} rows counts once${through}. ${told}` };
}

/** What was left out on purpose, by the counters that never go back. */
function leftOut({ newest, report, live }) {
  const counters = report?.summary?.counters ?? {};
  const operators = Object.values(newest?.totals?.operators ?? {});
  const sources = Object.values(newest?.totals?.sources ?? {});
  const sum = (of, name) => of.reduce((all, each) => all + (each[name] ?? 0), 0);
  const most = (told, name) => Math.max(told, live ? 0 : counters[name] ?? 0);
  const late = most(sum(operators, "late"), "late");
  const letters = most(sum(operators, "dead_letters"), "dead_letters");
  const shed = most(sum(sources, "shed"), "shed");
  return [
    late && `${count(late, "late row")} left out`,
    letters && `${count(letters, "row")} became dead letters`,
    shed && `${count(shed, "overdue row")} skipped by sources`,
  ].filter(Boolean);
}

// -- what did the loss of a node cost --------------------------------------------------------------------------------

function loss({ changes, end }) {
  const all = changes.filter((each) => each.kind === "recovery");
  const last = all.at(-1);
  if (!last) return {
    text: changes.some((each) => each.kind === "loss")
      ? "Nothing: the lost node hosted no instance."
      : "No node was lost."
  };
  const others = all.length > 1 ? ` It was the last of ${number(all.length)} losses.` : "";
  const phases = last.phases.map((each) => `${each.name} in ${seconds(each.seconds)}`).join(", ");
  const back = last.status === "ok"
    ? `${names(last.instances)} recovered in ${tookWords(last, end)} (${phases})`
    : `${names(last.instances)} not recovered ${tookWords(last, end)}`;
  const rows = last.status === "ok" ? " No row was lost." : "";
  const cost = `Latency: ${lower(costWords(last.cost))}${rows}${others}`;
  return { text: `Node ${last.node} was lost at ${moment(last.start)}; ${back}. ${cost}`, change: last.id };
}

function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

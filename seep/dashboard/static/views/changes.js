/** Changes: a card for each scaling, recovery, migration, balance and checkpoint, with its reason, phases and cost. */

import { KINDS, PHASES, costWords, tookWords } from "../changes.js";
import { element, isStill, keyed, setAttributes, setChildren, setStyle, setText } from "../dom.js";
import { bytes, count, moment, names, number, seconds } from "../format.js";

export const title = "Changes";

/** Cards that are shown at first, and with each request for more. */
const MANY = 24;
/** Kinds that are left out at first, because they come often. */
const OFTEN = ["checkpoint"];
const BADGES = {
  ok: ["good", "done"], error: ["bad", "not done"], open: ["warn", "goes on"], unset: ["warn", "not ended"],
};
const INSTANCES = 8;

export function mount(root, app) {
  root.className = "card";
  const hidden = new Set(OFTEN);
  let most = MANY;
  const filters = element("div", { class: "row", role: "group", "aria-label": "Kinds of change that are shown" });
  const list = element("ol", { class: "changes" });
  const nothing = element("p", { class: "muted" }, "Nothing has changed: no scaling, recovery, migration or balance.");
  const more = element("button", { type: "button", class: "button", on: { click: showMore } }, "Show older changes");
  root.append(element("div", { class: "head" }, element("h2", {}, "Changes"), filters), nothing, list, more);
  let shown = null;
  document.addEventListener(
    "seep-open",
    () => requestAnimationFrame(() => list.querySelector(".selected h3 button")?.focus({ preventScroll: true })),
  );

  function showMore() {
    most += MANY;
    app.store.changed();
  }

  function toggle(kind) {
    if (!hidden.delete(kind)) hidden.add(kind);
    app.store.changed();
  }

  function makeFilter({ kind }) {
    return element("button", { type: "button", class: "button", on: { click: () => toggle(kind) } });
  }

  function update(model) {
    const kinds = Object.keys(KINDS).filter((kind) => model.changes.some((each) => each.kind === kind));
    keyed(filters, kinds.map((kind) => ({ kind })), (each) => each.kind, makeFilter, (button, { kind }) => {
      setText(
        button,
        `${KINDS[kind].sign} ${KINDS[kind].title} ${number(model.changes.filter((each) => each.kind === kind).length)}`,
      );
      setAttributes(button, { "aria-pressed": String(!hidden.has(kind)) });
    });
    const selected = model.selected.change;
    const wanted = model.changes.filter((each) => !hidden.has(each.kind) || each.id === selected).reverse();
    const place = wanted.findIndex((each) => each.id === selected);
    const cards = wanted.slice(0, Math.max(most, place + 1));
    keyed(list, cards, (each) => each.id, (each) => makeCard(each, app), (card, each) => changeCard(card, each, model));
    nothing.hidden = model.changes.length > 0;
    more.hidden = wanted.length <= cards.length;
    if (selected !== shown) {
      shown = selected;
      list.querySelector(".selected")?.scrollIntoView({ block: "nearest", behavior: isStill() ? "auto" : "smooth" });
    }
  }

  return { update };
}

function makeCard(change, app) {
  const sign = element("span", { class: "sign", "aria-hidden": "true" }, KINDS[change.kind].sign);
  const name = element("button", { type: "button", "aria-expanded": "true" });
  const badge = element("span", { class: "badge" });
  const card = element("li", { class: "change" });
  card.parts = {
    name, badge, when: element("p", { class: "when" }), phases: element(
      "div", { class: "phases" },
    ), told: element("dl"),
  };
  card.append(element("h3", {}, sign, name, badge), card.parts.when, card.parts.phases, card.parts.told);
  setStyle(card, "--mark", `var(${KINDS[change.kind].colour})`);
  name.removeAttribute("aria-expanded");
  name.addEventListener("click", () => {
    const isSelected = app.store.model.selected.change === change.id;
    app.store.select({ change: isSelected ? null : change.id });
    if (!isSelected) app.store.seek(change.start);
  });
  return card;
}

function changeCard(card, change, model) {
  const isSelected = change.id === model.selected.change;
  setAttributes(card, { class: `change${isSelected ? " selected" : ""}`, "data-change": change.id });
  const text = JSON.stringify(change) + (change.end === null ? Math.round(model.end) : "");
  if (card.text === text) return;
  card.text = text;
  const [kind, words] = BADGES[change.status] ?? BADGES.unset;
  setText(card.parts.name, change.title);
  setAttributes(card.parts.badge, { class: `badge ${kind}` });
  setText(card.parts.badge, words);
  setText(
    card.parts.when,
    change.start === change.end
      ? `at ${moment(change.start)}`
      : `at ${moment(change.start)}, ${change.end === null ? "" : "took "}${tookWords(change, model.end)}`,
  );
  setChildren(card.parts.phases, phases(change, model.end));
  card.parts.phases.hidden = change.phases.length === 0;
  setChildren(card.parts.told, facts(change));
}

function phases(change, now) {
  const length = (change.end ?? now) - change.start || 1;
  return change.phases.flatMap(({ name, intervals, seconds: took }, place) => {
    const track = element("div", { class: "track", "aria-hidden": "true" }, intervals.map(([start, end]) => {
      const part = element("div", { class: "part" });
      setStyle(part, "left", `${(100 * (start - change.start)) / length}%`);
      setStyle(part, "width", `${(100 * (end - start)) / length}%`);
      setStyle(part, "--part", `var(--series-${place})`);
      return part;
    }));
    return [element("span", { title: PHASES[name] }, name), track, element("span", { class: "took" }, seconds(took))];
  });
}

function facts(change) {
  const { attributes, instances } = change;
  return [
    fact("Why", change.why),
    fact("Not done", change.status === "error" ? change.reason : ""),
    fact(
      "Moved",
      [
        change.slots && `${number(change.slots)} slots`, change.bytes !== undefined && bytes(change.bytes),
      ].filter(Boolean).join(", "),
    ),
    fact("Instances", instances.length ? names(instances, INSTANCES) : ""),
    fact("Held back", attributes.held_back ? count(attributes.held_back, "row") : ""),
    fact("Latency", ["checkpoint", "savepoint", "failure"].includes(change.kind) ? "" : costWords(change.cost)),
    fact("Lost", change.lost),
  ].filter(Boolean);
}

function fact(name, text) {
  return text ? [element("dt", {}, name), element("dd", {}, text)] : null;
}

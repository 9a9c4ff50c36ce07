/** The bar of time: which moment is shown, back over the series, from mark to mark, and on by itself. */

import { element, setAttributes, setText } from "./dom.js";
import { moment } from "./format.js";

const SPEEDS = [0.5, 1, 2, 5, 20, 60];
/** Seconds between two moments while it plays. */
const STEP = 0.1;

export function makeTimeBar(root, app) {
  const { store } = app;
  let timer = null;
  let help = () => {};

  const button = (label, sign, click) => element(
    "button", { type: "button", class: "button", "aria-label": label, title: label, on: { click } }, sign,
  );
  const before = button("Previous mark", "|◀", () => step(-1));
  const player = button("Play", "▶", play);
  const after = button("Next mark", "▶|", () => step(1));
  const slider = element(
    "input",
    {
      type: "range", min: "0", max: "1", step: "any", class: "slider", "aria-label": "Time of the run that is shown",
      on: { input: slid },
    },
  );
  const label = element("output", { class: "time" });
  const speed = element(
    "select", { class: "input", "aria-label": "Speed" },
    SPEEDS.map((each) => element("option", { value: each, selected: each === 1 }, `${each} ×`)),
  );
  const now = element("button", { type: "button", class: "button primary", on: { click: goNow } });
  const keys = button("Keys", "?", () => help());
  keys.classList.add("keys");
  root.append(before, player, after, slider, label, speed, now, keys);
  root.hidden = false;

  function slid() {
    stop();
    store.seek(Number(slider.value));
  }

  function goNow() {
    stop();
    store.seek(null);
  }

  function move(seconds) {
    stop();
    store.seek(store.model.at + seconds);
  }

  /** Goes to the next mark in a direction, and selects its change. */
  function step(direction) {
    stop();
    const { changes, at } = store.model;
    const ordered = direction > 0 ? changes : [...changes].reverse();
    const next = ordered.find((each) => direction * (each.start - at) > 0.05);
    if (!next) return;
    store.seek(next.start);
    store.select({ change: next.id });
  }

  function play() {
    if (timer !== null) {
      stop();
      return;
    }
    if (store.model.isNow) store.seek(store.model.begin);
    timer = setInterval(() => {
      store.seek(store.model.at + STEP * Number(speed.value));
      if (store.model.isNow) stop();
    }, 1000 * STEP);
    store.changed();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    store.changed();
  }

  function update(model) {
    const playing = timer !== null;
    setAttributes(
      slider, { min: model.begin, max: model.end, "aria-valuetext": `${moment(model.at)} of ${moment(model.end)}` },
    );
    if (Number(slider.value) !== model.at) slider.value = model.at;
    setText(label, `${moment(model.at)} of ${moment(model.end)}`);
    setText(player, playing ? "❚❚" : "▶");
    setAttributes(player, { "aria-label": playing ? "Pause" : "Play", title: playing ? "Pause" : "Play" });
    setText(now, model.live ? "Now" : "End");
    setAttributes(now, { disabled: model.isNow });
    setAttributes(before, { disabled: model.changes.length === 0 });
    setAttributes(after, { disabled: model.changes.length === 0 });
  }

  return { update, play, step, move, now: goNow, onHelp: (show) => (help = show) };
}

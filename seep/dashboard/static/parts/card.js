import { element } from "../dom.js";

/** A card with a heading. */
export function card(heading, ...children) {
  return element("section", { class: "card" }, element("h2", {}, heading), children);
}

/** What stands side by side, as far as there is room. */
export function row(...children) {
  return element("div", { class: "row" }, children);
}

/** Cards side by side, or one below the other on narrow screens. */
export function columns(...children) {
  return element("div", { class: "columns" }, children);
}

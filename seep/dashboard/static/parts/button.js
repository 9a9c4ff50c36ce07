import { element } from "../dom.js";

/** A button that does something when it is pressed. */
export function button(label, click, attributes = {}) {
  return element("button", { type: "button", class: "button", on: { click }, ...attributes }, label);
}

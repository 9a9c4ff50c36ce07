import { element, setChildren } from "../dom.js";

let made = 0;

/** A labelled list to choose from, such as the operators of a run; it keeps its choice while that is in the list. */
export class Choice {
  #select;
  #names = [];

  constructor(label, chosen) {
    made += 1;
    const id = `choice-${made}`;
    this.#select = element("select", { id, on: { change: () => chosen(this.value) } });
    this.node = element("span", { class: "field" }, element("label", { for: id }, label), this.#select);
  }

  get value() {
    return this.#select.value;
  }

  set value(name) {
    if (this.#names.includes(name)) this.#select.value = name;
  }

  /** Shows these names, and chooses the preferred one if there was no choice, or it is gone. */
  show(names, preferred = names[0]) {
    if (names.length === this.#names.length && names.every((name, at) => name === this.#names[at])) return;
    const before = this.value;
    this.#names = [...names];
    setChildren(this.#select, ...names.map((name) => element("option", { value: name }, name)));
    this.#select.value = names.includes(before) ? before : (preferred ?? names[0] ?? "");
  }
}

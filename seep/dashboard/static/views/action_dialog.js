import { element, setChildren, setText } from "../dom.js";
import { button } from "../parts/button.js";
import { Choice } from "../parts/choice.js";
import { DEFAULT, EVERY, STRATEGIES, instancesOf, nodesOf } from "./action_list.js";

/** The most instances that an operator can have. */
const MOST = 1 << 20;

/**
 * One dialog for all actions: the fields of the action, a sentence that says what will happen, and two buttons. The
 * browser keeps the focus in it, gives it back afterwards, and closes it with Escape.
 */
export class ActionDialog {
  #heading = element("h2", { id: "action-heading" });
  #fields = element("div", { class: "row" });
  #sentence = element("p", { id: "action-sentence", role: "status" });
  #button = element("button", { type: "submit", class: "button primary" });
  #action = null;
  #model = null;
  #inputs = {};
  #confirmed;

  constructor(confirmed) {
    this.#confirmed = confirmed;
    const cancel = button("Cancel", () => this.node.close());
    const form = element(
      "form",
      { on: { submit: (event) => this.#submit(event), input: () => this.#tell() } },
      this.#heading,
      this.#fields,
      this.#sentence,
      element("div", { class: "row end" }, cancel, this.#button),
    );
    const labels = { "aria-labelledby": "action-heading", "aria-describedby": "action-sentence" };
    this.node = element("dialog", { ...labels }, form);
  }

  get isOpen() {
    return this.node.open;
  }

  close() {
    if (this.isOpen) this.node.close();
  }

  /** Opens the dialog for an action, with the operator chosen that is selected on the page. */
  open(action, model) {
    this.#action = action;
    this.#model = model;
    this.#inputs = Object.fromEntries(action.fields.map((name) => [name, this.#inputOf(name)]));
    setText(this.#heading, action.label);
    setChildren(this.#fields, ...action.fields.map((name) => this.#inputs[name].node));
    this.#button.classList.toggle("danger", action.isGrave ?? false);
    this.#suggest();
    this.#tell();
    this.node.showModal();
    (this.#fields.querySelector("select, input") ?? this.#button).focus();
  }

  /** Brings the sentence up to date while the dialog is open: the run goes on. */
  update(model) {
    this.#model = model;
    if (this.isOpen) this.#tell();
  }

  get #values() {
    return Object.fromEntries(Object.entries(this.#inputs).map(([name, input]) => [name, input.value]));
  }

  #inputOf(name) {
    const { run, selected } = this.#model;
    const operators = Object.keys(run.operators);
    switch (name) {
      case "operator":
        return choice("Operator", operators, selected.operator ?? run.stateful[0], () => this.#suggest());
      case "stateful":
        return choice("Operator", [EVERY, ...run.stateful]);
      case "node":
        return choice("Node", nodesOf(this.#model));
      case "strategy":
        return choice("Strategy", Object.keys(STRATEGIES), DEFAULT);
      case "savepoint":
        return checkField("Take a savepoint before");
      default:
        return numberField("Instances");
    }
  }

  /** Suggests one instance more than the operator has. */
  #suggest() {
    const { operator, to } = this.#inputs;
    if (operator && to) to.value = instancesOf(this.#model, operator.value).length + 1;
  }

  #tell() {
    const { to } = this.#values;
    const isWrong = to !== undefined && !(to >= 1 && to <= MOST && Number.isInteger(to));
    const words = isWrong ? `Give a whole number of instances from 1 to ${MOST.toLocaleString("en-US")}.` : null;
    setText(this.#sentence, words ?? this.#action.says(this.#values, this.#model));
    setText(this.#button, this.#action.button(this.#values));
    this.#button.disabled = isWrong;
  }

  #submit(event) {
    event.preventDefault();
    const [action, values] = [this.#action, this.#values];
    this.node.close();
    this.#confirmed(action, values);
  }
}

function choice(label, names, preferred, chosen = () => {}) {
  const made = new Choice(label, chosen);
  made.show(names, names.includes(preferred) ? preferred : names[0]);
  return made;
}

function numberField(label) {
  const limits = { min: "1", max: String(MOST), step: "1", required: true };
  const input = element("input", { id: "action-number", type: "number", ...limits });
  return {
    node: element("span", { class: "field" }, element("label", { for: "action-number" }, label), input),
    get value() {
      return input.valueAsNumber;
    },
    set value(number) {
      input.value = String(number);
    },
  };
}

function checkField(label) {
  const input = element("input", { type: "checkbox" });
  return {
    node: element("label", { class: "check" }, input, label),
    get value() {
      return input.checked;
    },
  };
}

import { element, setChildren, setText } from "../dom.js";
import { count, number } from "../format.js";
import { button } from "../parts/button.js";
import { ActionDialog } from "./action_dialog.js";
import { ACTIONS } from "./action_list.js";
import { RepeatedRequest } from "../parts/repeated_request.js";

export const title = "Actions";

const EVERY = 1000;
/** States in which a migration is over. */
const OVER = ["done", "cancelled", "refused"];
/** The most changes that were asked for here and are not over, of which the end is told. */
const MOST_OPEN = 20;

/** Buttons that act on the run, each with a confirmation; and the progress of what moves. */
export function mount(root, app) {
  const view = new ActionsView(app);
  root.append(...view.nodes);
  return view;
}

class ActionsView {
  #app;
  #model = null;
  #buttons = element("div", { class: "row", role: "group", "aria-label": "Actions" });
  #why = element("p", { class: "muted" });
  #progress = element("ul", { class: "progress-list", "aria-label": "What moves now" });
  #dialog = new ActionDialog((action, values) => this.#carryOut(action, values));
  #request;
  #open = []; // what was asked for here and is not over: {ends, operator, node, since}

  constructor(app) {
    this.#app = app;
    this.#request = new RepeatedRequest((signal) => app.api.get("/migrations", {}, { signal }), {
      every: EVERY,
      answered: ({ migrations }) => this.#showProgress(migrations.filter((each) => !OVER.includes(each.state))),
      refused: () => this.#showProgress([]),
    });
    this.nodes = [this.#buttons, this.#why, this.#progress, this.#dialog.node];
  }

  update(model) {
    this.#model = model;
    const can = this.#possible;
    setText(this.#why, this.#whyNone(can));
    this.#why.hidden = can.length > 0;
    this.#showButtons(can);
    if (!can.length) this.#dialog.close();
    this.#dialog.update(model);
    this.#followProgress();
    this.#tellEnds();
  }

  get #possible() {
    if (!this.#model.live || this.#app.role !== "operator") return [];
    return ACTIONS.filter((action) => this.#app.acts.includes(action.do));
  }

  #whyNone(can) {
    if (can.length || !this.#model.run) return "";
    if (!this.#model.live) return `The run is over (${this.#model.phase}), so there is nothing to do with it.`;
    if (this.#app.role !== "operator") return "You may look, and not act: for that, log in as an operator.";
    return "The run takes no requests at this moment.";
  }

  #showButtons(can) {
    const shown = can.map((action) => action.do).join(" ");
    if (this.#buttons.dataset.shown === shown) return;
    this.#buttons.dataset.shown = shown;
    this.#buttons.hidden = !can.length;
    setChildren(this.#buttons, ...can.map((action) => this.#buttonOf(action)));
  }

  #buttonOf(action) {
    const open = () => this.#dialog.open(action, this.#model);
    const classes = `button${action.isGrave ? " grave" : ""}`;
    return button(`${action.label} …`, open, { class: classes, "aria-haspopup": "dialog" });
  }

  async #carryOut(action, values) {
    const since = this.#model.newest?.at ?? 0;
    this.#app.notify(`${action.button(values)}: asked for …`, "warn");
    try {
      const answer = await this.#app.api.post(`/${action.do}`, action.body(values));
      if (action.answered) this.#app.notify(action.answered(answer), "good");
      if (action.ends.length) this.#await({ ends: action.ends, operator: values.operator, node: values.node, since });
    } catch (error) {
      this.#app.notify(`${action.label} was refused: ${error.message}`, "bad");
    }
  }

  // -- how what was asked for ends ----------------------------------------------------------------------------------

  #await(asked) {
    this.#open = [...this.#open, asked].slice(-MOST_OPEN);
    this.#request.start();
  }

  #tellEnds() {
    this.#open = this.#open.filter((asked) => {
      const end = this.#model.events.findLast((event) => isEndOf(event, asked));
      if (end) this.#app.notify(endText(end), /refused|given up|failed|cancelled/.test(end.kind) ? "bad" : "good");
      return !end;
    });
  }

  // -- progress -----------------------------------------------------------------------------------------------------

  #followProgress() {
    const moves = this.#model.live && (this.#open.length > 0 || (this.#model.newest?.decisions ?? []).length > 0);
    if (moves) return this.#request.start();
    this.#request.stop();
    return this.#showProgress([]);
  }

  #showProgress(migrations) {
    this.#progress.hidden = !migrations.length;
    setChildren(this.#progress, ...migrations.map(progressNode));
  }
}

function isEndOf(event, { ends, operator, node, since }) {
  return event.at >= since && ends.includes(event.kind) && (operator === undefined || event.operator === operator) &&
    (node === undefined || event.node === node);
}

function endText(event) {
  return [event.operator ?? event.node, event.kind, event.detail].filter(Boolean).join(": ");
}

function progressNode(each) {
  const all = each.slots_moved + each.slots_remaining;
  const steps = `${number(each.steps_done)} of ${count(each.steps, "step")}`;
  const slots = `${number(each.slots_moved)} of ${count(all, "slot")} moved`;
  const text = `${each.operator} is ${each.state}: ${slots}, ${steps}`;
  const bar = element("progress", { max: String(all || 1), "aria-label": `Slots of ${each.operator} moved` });
  bar.value = each.slots_moved;
  return element("li", {}, bar, element("span", {}, text));
}

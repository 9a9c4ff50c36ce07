import { element, setText } from "../dom.js";
import { colourOf, count, moment, number } from "../format.js";
import { card, row } from "../parts/card.js";
import { Choice } from "../parts/choice.js";
import { RepeatedRequest } from "../parts/repeated_request.js";
import { Table } from "../parts/table.js";
import { isPresent, operatorsBut, whyLess } from "../parts/words.js";

export const title = "Dead letters";

const EVERY = 3000;
const ALL = "all operators";
const UNUSUAL = "Rows that were not processed as usual";

/** Rows that operators could not process, with samples; and rows that were late or skipped. */
export function mount(root, app) {
  const view = new LettersView(app);
  root.append(...view.nodes);
  return view;
}

class LettersView {
  #model = null;
  #request;
  #choice = new Choice("Operator", () => this.#request.again());
  #sentence = element("p");
  #refusal = element("p", { class: "refused", role: "status" });
  #totals = new Table(UNUSUAL, TOTAL_COLUMNS, { empty: "How many of each operator is not known at this moment." });
  #letters = new Table("Dead letters, newest first", LETTER_COLUMNS, { empty: "No sample of a dead letter is kept." });
  #told = {};

  constructor(app) {
    this.#request = new RepeatedRequest((signal) => app.api.get("/dead-letters", this.#asked, { signal }), {
      every: EVERY,
      answered: (answer) => this.#show(answer),
      refused: (error) => this.#refuse(error),
    });
    this.nodes = [
      card(UNUSUAL, this.#sentence, this.#totals.node),
      card("Samples of dead letters, newest first", row(this.#choice.node), this.#refusal, this.#letters.node),
    ];
  }

  update(model) {
    this.#model = model;
    this.#choice.show([ALL, ...operatorsBut(model, "source")]);
    const totals = totalsOf(model, this.#told);
    this.#totals.show(isKnown(model) ? totals : []);
    setText(this.#sentence, sentenceOf(model, totals));
  }

  show() {
    this.#request.start();
  }

  hide() {
    this.#request.stop();
  }

  get #asked() {
    const operator = this.#choice.value; // none before the operators are known
    return operator && operator !== ALL ? { operator } : {};
  }

  #show({ letters, totals }) {
    this.#told = totals;
    setText(this.#refusal, "");
    this.#letters.show(letters.toReversed());
    this.#rest();
  }

  #refuse(error) {
    setText(this.#refusal, error.message);
    this.#letters.show([]);
    this.#rest();
  }

  /** A run that is over has no news. */
  #rest() {
    if (this.#model && !this.#model.live) this.#request.stop();
    else if (this.#model) this.update(this.#model);
  }
}

const TOTAL_COLUMNS = [
  { head: "Operator", text: (row) => row.operator, colour: (row) => colourOf(row.index) },
  { head: "Dead letters", isNumber: true, text: (row) => number(row.letters) },
  { head: "Late rows", isNumber: true, text: (row) => number(row.late) },
  { head: "Rows skipped because overdue", isNumber: true, text: (row) => number(row.shed) },
];

const LETTER_COLUMNS = [
  { head: "At", text: (row) => moment(row.at) },
  { head: "Instance", text: (row) => row.instance },
  { head: "Function", text: (row) => row.function },
  { head: "Error", isLong: true, text: (row) => row.error },
  { head: "Row", isLong: true, text: (row) => row.row },
];

/** Counts by operator: those of the status; of dead letters also what the run has told with its samples. */
function totalsOf(model, told) {
  const { operators = {}, sources = {} } = model.status?.totals ?? {};
  return Object.keys(model.run?.operators ?? {}).map((operator, index) => {
    const counted = operators[operator];
    const letters = Math.max(counted?.dead_letters ?? -1, told[operator] ?? -1);
    const shed = sources[operator]?.shed;
    return { operator, index, letters: letters < 0 ? undefined : letters, late: counted?.late, shed };
  });
}

function isKnown(model) {
  return Object.keys(model.status?.totals?.operators ?? {}).length > 0;
}

function sentenceOf(model, totals) {
  const why = whyLess(model, "its report counts these rows for all operators together");
  if (!isPresent(model)) return `${why} In the whole run: ${countText(model.report?.summary?.counters ?? {})}.`;
  const sum = (name) => totals.reduce((all, each) => all + (each[name] ?? 0), 0);
  const counts = { dead_letters: sum("letters"), late: sum("late"), shed: sum("shed") };
  if (Object.values(counts).every((each) => each === 0)) return "No dead letter, no late row, no skipped row so far.";
  return `${countText(counts)} so far; rows that were processed again after a loss are counted again.`;
}

function countText({ dead_letters: letters = 0, late = 0, shed = 0 }) {
  return `${count(letters, "dead letter")}, ${count(late, "late row")}, ${count(shed, "skipped row")}`;
}

import { element, setChildren, setText } from "../dom.js";
import { count, number, seconds } from "../format.js";
import { button } from "../parts/button.js";
import { card, row } from "../parts/card.js";
import { Choice } from "../parts/choice.js";
import { valueTable } from "../parts/table.js";
import { whyLess } from "../parts/words.js";

export const title = "State";

const PAGE = 50;
const MOST_ROWS = 1000;
/** Bytes of state that are read without being asked to. */
const SMALL = 64 << 20;

/** The state of an operator: a key looked up, rows page by page, and SQL over it. */
export function mount(root, app) {
  const view = new StateView(app);
  root.append(...view.nodes);
  return view;
}

class StateView {
  #model = null;
  #operator = new Choice("Operator", () => this.#forget());
  #sentence = element("p");
  #rows;
  #sql;
  #isShown = false;

  constructor(app) {
    const operator = () => this.#operator.value;
    this.#sql = new SqlBox(app, operator);
    this.#rows = new StateRows(app, operator, (containers) => this.#sql.name(containers));
    this.nodes = [
      card("State", row(this.#operator.node), this.#sentence),
      this.#rows.node,
      this.#sql.node,
    ];
  }

  /** Reads the first rows of a small state at once; a large one, which takes memory, waits for the button. */
  #begin() {
    const told = this.#model?.newest?.operators?.find((each) => each.name === this.#operator.value);
    if (this.#isShown && this.#model?.live && told && told.state_bytes <= SMALL) this.#rows.begin();
  }

  show() {
    this.#isShown = true;
  }

  hide() {
    this.#isShown = false;
  }

  update(model) {
    this.#model = model;
    const { stateful = [] } = model.run ?? {};
    const chosen = model.selected?.operator;
    this.#operator.show(stateful, stateful.includes(chosen) ? chosen : stateful[0]);
    setText(this.#sentence, this.#explanation(stateful));
    this.#rows.node.hidden = this.#sql.node.hidden = !stateful.length || !model.live;
    this.#begin();
  }

  #explanation(stateful) {
    if (!stateful.length) return "No operator of this query keeps state.";
    if (!this.#model.live) {
      const why = whyLess(this.#model, "its state is gone from memory");
      return `${why} If it had storage, “seep state show” reads its checkpoints.`;
    }
    return "Everything is read after one epoch, a little later than now, while the query goes on.";
  }

  #forget() {
    this.#rows.forget();
    this.#sql.forget();
  }
}

/** A form in which to look up a key, and rows page by page. */
class StateRows {
  #app;
  #operator;
  #known;
  #container = new Choice("Container", () => this.#askFirst());
  #key = element("div", { class: "row" });
  #keyOf = null; // the container whose key columns are shown
  #inputs = [];
  #told = element("p", { class: "muted", role: "status" });
  #table = element("div");
  #back;
  #on;
  #offset = 0; // of the page that is shown
  #next = 0; // of the page after it: a page of long values has fewer rows than were asked for
  #before = []; // offsets of the pages before it
  #hasBegun = false;
  #asked = 0;

  /** `known` is called with the containers of the operator, once they are known. */
  constructor(app, operator, known) {
    this.#app = app;
    this.#operator = operator;
    this.#known = known;
    this.#back = button("Earlier rows", () => this.#goBack(), { disabled: true });
    this.#on = button("Further rows", () => this.#goOn(), { disabled: true });
    const read = button("Read rows", () => this.#askFirst());
    const form = element("form", { class: "row", on: { submit: (event) => this.#look(event) } }, this.#key);
    this.node = card(
      "Rows",
      row(this.#container.node, read, this.#back, this.#on),
      form,
      this.#told,
      this.#table,
    );
    this.#container.node.hidden = true;
  }

  /** Reads the first rows, unless something was read or asked for since another operator was chosen. */
  begin() {
    if (!this.#hasBegun) this.#askFirst();
  }

  forget() {
    this.#hasBegun = false;
    this.#asked += 1;
    this.#keyOf = null;
    this.#container.show([]);
    this.#container.node.hidden = true;
    setText(this.#told, "");
    setChildren(this.#key);
    setChildren(this.#table);
    this.#withoutPages();
  }

  #goOn() {
    this.#before.push(this.#offset);
    this.#askPage(this.#next);
  }

  #goBack() {
    this.#askPage(this.#before.pop());
  }

  #askFirst() {
    this.#before = [];
    return this.#askPage(0);
  }

  #askPage(offset) {
    return this.#ask({ offset, limit: PAGE }, (answer) => this.#page(answer));
  }

  #look(event) {
    event.preventDefault();
    const key = this.#inputs.map((input) => input.value);
    return this.#ask({ key, limit: PAGE }, (answer) => this.#found(answer, key));
  }

  async #ask(asked, answered) {
    this.#hasBegun = true;
    const turn = (this.#asked += 1);
    setText(this.#told, `Reading the state of ${this.#operator()} …`);
    const chosen = { operator: this.#operator(), container: this.#container.value || null };
    const answer = this.#app.api.get("/state", { ...chosen, ...asked });
    const [tell, told] = await outcome(answer, answered, (error) => this.#refuse(error));
    if (turn === this.#asked) tell(told);
  }

  #refuse(error) {
    setText(this.#told, error.message);
    setChildren(this.#table);
    this.#withoutPages();
  }

  #withoutPages() {
    this.#before = [];
    this.#enable(0, 0, 0);
  }

  #page(answer) {
    this.#show(answer);
    const { rows, offset, total, epoch } = answer;
    const range = `rows ${number(offset + 1)} to ${number(offset + rows.length)} of ${number(total)}`;
    setText(this.#told, `${answer.container}: ${rows.length ? range : "no rows"}, after epoch ${number(epoch)}`);
    this.#enable(offset, offset + rows.length, total);
  }

  #found(answer, key) {
    this.#show(answer);
    const found = answer.rows.length ? count(answer.total, "row") : "no state";
    setText(this.#told, `${answer.container}: ${found} of key ${key.join(", ")}, after epoch ${number(answer.epoch)}`);
    this.#withoutPages();
  }

  #show({ containers, container, rows }) {
    this.#known(containers);
    this.#container.show(Object.keys(containers), container);
    this.#container.value = container;
    this.#container.node.hidden = Object.keys(containers).length < 2;
    const { columns, keys } = containers[container];
    this.#askFor(container, keys);
    const values = rows.map((row) => columns.map(({ name }) => row[name]));
    setChildren(this.#table, rows.length ? valueTable(`Rows of ${container}`, columns, values) : null);
  }

  #askFor(container, keys) {
    if (this.#keyOf === container) return;
    this.#keyOf = container;
    this.#inputs = keys.map((_, at) => element("input", { id: `key-${at}`, autocomplete: "off", spellcheck: "false" }));
    const fields = keys.map((name, at) => {
      const label = element("label", { for: `key-${at}` }, `Key: ${name}`);
      return element("span", { class: "field" }, label, this.#inputs[at]);
    });
    setChildren(this.#key, ...fields, element("button", { class: "button" }, "Look up"));
  }

  #enable(offset, next, total) {
    this.#offset = offset;
    this.#next = next;
    this.#back.disabled = !this.#before.length;
    this.#on.disabled = next >= total;
  }
}

/** A box for SQL over the containers of an operator, each of which is a table. */
class SqlBox {
  #app;
  #operator;
  #text;
  #tables = element("p", { class: "muted", id: "sql-tables" });
  #told = element("p", { class: "muted", role: "status" });
  #table = element("div");
  #asked = 0;

  constructor(app, operator) {
    this.#app = app;
    this.#operator = operator;
    const limits = { rows: "3", maxlength: "10000", spellcheck: "false" };
    const helped = { "aria-describedby": "sql-help sql-tables" };
    this.#text = element("textarea", { id: "sql", class: "input sql", ...helped, ...limits });
    this.#text.addEventListener("keydown", (event) => this.#press(event));
    const help = "One SELECT over the containers of the operator, each of which is a table. Ctrl-Enter asks.";
    this.node = card(
      "SQL",
      element("label", { for: "sql", class: "hidden-text" }, "SQL query"),
      element("p", { class: "muted", id: "sql-help" }, help),
      this.#tables,
      this.#text,
      row(button("Ask", () => this.#ask())),
      this.#told,
      this.#table,
    );
  }

  forget() {
    this.#asked += 1;
    setText(this.#told, "");
    setText(this.#tables, "");
    setChildren(this.#table);
  }

  /** Shows the tables with their columns, as they are written in SQL. */
  name(containers) {
    const columnsOf = ({ columns }) => columns.map((each) => quoted(each.name)).join(", ");
    const tables = Object.entries(containers).map(([name, each]) => `${quoted(name)} (${columnsOf(each)})`);
    setText(this.#tables, `Tables: ${tables.join("; ")}`);
    const [first] = Object.keys(containers);
    this.#text.placeholder = first ? `SELECT * FROM ${quoted(first)} LIMIT 10` : "";
  }

  #press(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.#ask();
  }

  async #ask() {
    const turn = (this.#asked += 1);
    const sql = this.#text.value.trim();
    if (!sql) return setText(this.#told, `Write a query first, such as ${this.#text.placeholder || "SELECT 1"}.`);
    setText(this.#told, "Asking …");
    const body = { operator: this.#operator(), sql, limit: MOST_ROWS };
    const answer = this.#app.api.post("/sql", body);
    const [tell, told] = await outcome(answer, (rows) => this.#show(rows), (error) => this.#refuse(error));
    return turn === this.#asked && tell(told);
  }

  #show(answer) {
    const rows = count(answer.rows.length, "row");
    const all = answer.more ? `the first ${rows} (there are more)` : rows;
    setText(this.#told, `${all}, in ${seconds(answer.seconds)}, after epoch ${number(answer.epoch)}`);
    this.#told.classList.remove("refused");
    setChildren(this.#table, valueTable("Result of the query", answer.columns, answer.rows));
  }

  #refuse(error) {
    setText(this.#told, error.message);
    this.#told.classList.add("refused");
    setChildren(this.#table);
  }
}

/** A name as SQL writes it, in quotes unless it is plain. */
function quoted(name) {
  return /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

async function outcome(promise, answered, refused) {
  try {
    return [answered, await promise];
  } catch (error) {
    return [refused, error];
  }
}

import { element, setText } from "../dom.js";
import { count } from "../format.js";
import { card, row } from "../parts/card.js";
import { Choice } from "../parts/choice.js";
import { RepeatedRequest } from "../parts/repeated_request.js";

export const title = "Logs";

const EVERY = 1000;
/** The most lines that are shown. */
const KEPT = 1000;
const LEVELS = ["info", "debug", "warning", "error"];
const ALL = "all nodes";
/** The fields of a line that are shown: the run is known. */
const FIELDS = ["node", "instance", "epoch", "decision"];

/** The newest lines of the logs of all processes of a run. */
export function mount(root, app) {
  const view = new LogsView(app);
  root.append(...view.nodes);
  return view;
}

class LogsView {
  #level = new Choice("Level", () => this.#restart());
  #node = new Choice("Node", () => this.#restart());
  #follow = element("input", { type: "checkbox", checked: true, on: { change: () => this.#scroll() } });
  #told = element("p", { class: "muted", role: "status" });
  #lines = element("ol", { class: "log-lines" });
  #box;
  #request;
  #cursor = 0;
  #missed = 0;

  constructor(app) {
    this.#level.show(LEVELS.toSorted(), "info");
    const region = { class: "scroll logs", tabindex: "0", role: "region", "aria-label": "Log lines" };
    this.#box = element("div", region, this.#lines);
    this.#request = new RepeatedRequest((signal) => app.api.get("/logs", this.#asked, { signal }), {
      every: EVERY,
      answered: (answer) => this.#add(answer),
      refused: (error) => this.#refuse(error),
    });
    const follow = element("label", { class: "check" }, this.#follow, "Follow the newest");
    this.nodes = [card("Log lines", row(this.#level.node, this.#node.node, follow), this.#told, this.#box)];
  }

  update(model) {
    const hosts = (model.status?.hosts ?? []).map((each) => each.name);
    const nodes = new Set([...hosts, ...(model.status?.instances ?? []).map((each) => each.node)]);
    this.#node.show([ALL, ...[...nodes].sort(byNumber)]);
  }

  show() {
    this.#request.start();
  }

  hide() {
    this.#request.stop();
  }

  get #asked() {
    const node = this.#node.value;
    return { after: this.#cursor, level: this.#level.value, node: !node || node === ALL ? null : node };
  }

  #restart() {
    this.#cursor = this.#missed = 0;
    this.#lines.replaceChildren();
    this.#request.again();
    this.#request.start();
  }

  /** Adds lines; returns whether there are more of them now. */
  #add({ lines, next, missed, last, over }) {
    this.#cursor = next;
    this.#missed += missed;
    this.#lines.append(...lines.slice(-KEPT).map(lineNode));
    while (this.#lines.childElementCount > KEPT) this.#lines.firstChild.remove();
    this.#tell(over);
    if (lines.length) this.#scroll();
    if (over) this.#request.stop();
    return !last;
  }

  #tell(over) {
    const shown = this.#lines.childElementCount;
    const lines = shown ? `The newest ${count(shown, "line")}, with times in UTC` : "No line of this level";
    const missed = this.#missed ? `; ${count(this.#missed, "earlier line")} not kept any more` : "";
    setText(this.#told, `${lines}${missed}.${over ? " The run is over: there will be no further ones." : ""}`);
  }

  #refuse(error) {
    setText(this.#told, error.message);
    if (error.status) this.#request.stop();
  }

  #scroll() {
    if (this.#follow.checked) this.#box.scrollTop = this.#box.scrollHeight;
  }
}

/** n2 before n10. */
function byNumber(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

function lineNode(line) {
  const level = line.level.toLowerCase();
  const fields = FIELDS.filter((name) => name in line).map((name) => `${name} ${line[name]}`);
  return element(
    "li",
    { class: `log-line ${LEVELS.includes(level) ? level : ""}` },
    element("time", {}, line.time.slice(11, 23)),
    element("span", { class: "log-level" }, level),
    element("span", { class: "log-who" }, fields.join(", ") || line.logger.replace(/^seep\./, "")),
    element("span", { class: "log-text" }, line.message, line.exception ? element("pre", {}, line.exception) : null),
  );
}

import { element, setChildren, setText } from "../dom.js";
import { age, colourOf, count, number, percent, rate } from "../format.js";
import { card, columns, row } from "../parts/card.js";
import { Choice } from "../parts/choice.js";
import { RepeatedRequest } from "../parts/repeated_request.js";
import { HeatScale, SlotLoads, SlotMap } from "../parts/slot_map.js";
import { Table } from "../parts/table.js";
import { eventsOf, isPresent, operatorsBut, whyLess } from "../parts/words.js";

export const title = "Slots";

const EVERY = 3000;
const HOTTEST = 10;
/** No assignment is even if one slot has more than this many times the mean of the instances. */
const TOO_HOT = 1.1;

const REMEDY =
  "If it is one key: a key is in one slot and a slot has one owner, so balancing does not split a key, and more " +
  "instances do not help. Send fewer of its rows to the operator: aggregate before the rows are keyed, or divide the " +
  "key (the key and a number from 0 to 7) and combine the parts in a second step. Both are changes of the query.";

/** Heat map of an operator's slots, who owns them, and the key that is too hot. */
export function mount(root, app) {
  const view = new SlotsView(app);
  root.append(...view.nodes);
  return view;
}

/** A part as text; small ones with a digit more. */
function part(share) {
  return share > 0 && share < 0.1 ? `${number(100 * share, 1)} %` : percent(share);
}

class SlotsView {
  #app;
  #model = null;
  #request;
  #choice;
  #sentence = element("p");
  #hot = element("div", { hidden: true });
  #readout = element("p", { class: "readout", role: "status" });
  #map = new SlotMap((text) => setText(this.#readout, text ?? "Point at a slot, or use the arrow keys in the map."));
  #scale = new HeatScale();
  #owners;
  #hottest;
  #drawing;
  #isShown = false;
  #asked = ""; // what is asked for, or shown

  constructor(app) {
    this.#app = app;
    this.#choice = new Choice("Operator", () => this.#chosen());
    this.#request = new RepeatedRequest((signal) => app.api.get("/slots", { operator: this.#operator }, { signal }), {
      every: EVERY,
      answered: (answer) => this.#show(answer),
      refused: (error) => this.#refuse(error),
    });
    this.#owners = new Table("Who owns how much", this.#ownerColumns(), { empty: "No instance owns a slot." });
    this.#hottest = new Table("Slots with most rows", this.#hottestColumns(), { empty: "No rows are known by slot." });
    this.#drawing = element("div", {}, this.#map.node, this.#scale.node, this.#readout);
    this.nodes = [
      card("Slots", row(this.#choice.node), this.#sentence, this.#hot, this.#drawing),
      columns(card("Owners", this.#owners.node), card("Hottest slots", this.#hottest.node)),
    ];
  }

  update(model) {
    this.#model = model;
    this.#choice.show(operatorsBut(model, "source"), model.run?.stateful?.[0]);
    if (this.#isShown) this.#ask();
  }

  show() {
    this.#isShown = true;
    if (this.#model) this.#ask();
  }

  hide() {
    this.#isShown = false;
    this.#asked = "";
    this.#request.stop();
  }

  get #operator() {
    return this.#choice.value;
  }

  #chosen() {
    if (this.#isShown) this.#ask();
  }

  /** Asks again and again while the run goes on; of a run that is over, or of an earlier moment, once. */
  #ask() {
    const asked = `${this.#operator} ${isPresent(this.#model)}`;
    if (asked === this.#asked || !this.#operator) return;
    this.#asked = asked;
    this.#request.stop();
    this.#request.start();
  }

  #refuse(error) {
    this.#rest();
    const slots = this.#model.report?.slots?.[this.#operator];
    if (slots && !isPresent(this.#model)) return this.#show({ ...slots, seconds: 0 });
    return this.#showNothing(error);
  }

  #rest() {
    if (!isPresent(this.#model)) this.#request.stop();
  }

  #showNothing(error) {
    setText(this.#sentence, error.message);
    this.#drawing.hidden = true;
    this.#hot.hidden = true;
    this.#owners.show([]);
    this.#hottest.show([]);
  }

  #show(answer) {
    this.#rest();
    const loads = new SlotLoads(answer);
    this.#drawing.hidden = false;
    this.#map.show(this.#operator, loads);
    this.#scale.show(loads);
    setText(this.#sentence, this.#summary(loads, answer.seconds));
    this.#showHot(loads);
    const total = loads.total || 1;
    const ofAll = (each) => ({ ...each, share: each.slots / loads.slots, load: each.rows / total });
    this.#owners.show(loads.byOwner(), ofAll);
    this.#hottest.show(loads.hottestBuckets(HOTTEST).map((each) => ({ ...each, share: each.rows / total })));
  }

  #summary(loads, seconds) {
    const owners = new Set(loads.owners).size;
    const owned = `${this.#operator} has ${count(loads.slots, "slot")}, owned by ${count(owners, "instance")}.`;
    const why = whyLess(this.#model, "these are the last owners that are known; rows by slot are not kept");
    if (why) return `${owned} ${why}`;
    if (!loads.rows.length) return `${owned} Its rows are being counted by slot; the first figures come soon.`;
    return `${owned} Rows of the last ${number(seconds, 1)} s: ${rate(loads.total)} in all.`;
  }

  // -- what is too hot ----------------------------------------------------------------------------------------------

  #showHot(loads) {
    const isTooHot = this.#isTooHot(loads);
    const sentences = [...this.#hotNow(loads, isTooHot), ...this.#hotEvent()];
    this.#hot.hidden = !sentences.length;
    this.#hot.classList.toggle("callout", isTooHot || sentences.length > 1);
    setChildren(this.#hot, ...sentences.map((each) => element("p", {}, each)));
  }

  #isTooHot({ hottest, owners }) {
    const instances = new Set(owners).size;
    return hottest !== null && instances > 1 && hottest.share * instances > TOO_HOT;
  }

  #hotNow({ hottest }, isTooHot) {
    if (!hottest) return [];
    const key = hottest.key === null ? "its heaviest key is not known" : `its heaviest key is ${hottest.key}`;
    const where = `Slot ${number(hottest.slot)} of ${this.#operator}[${hottest.instance}]`;
    const sentence = `${where} has ${part(hottest.share)} of all rows of ${this.#operator}; ${key}.`;
    return isTooHot
      ? [`${sentence} That is more than the fair part of an instance, so no assignment of slots is even.`, REMEDY]
      : [`${sentence} Up to ${count(Math.floor(1 / hottest.share), "instance")} can share the rows evenly.`];
  }

  #hotEvent() {
    const last = eventsOf(this.#model, "hot slot").findLast((each) => each.operator === this.#operator);
    return last ? [`${age(this.#model.at - last.at)}, ${last.instance} had a hot slot: ${last.detail}`] : [];
  }

  // -- tables -------------------------------------------------------------------------------------------------------

  #ownerColumns() {
    return [
      { head: "Instance", text: (row) => `${this.#operator}[${row.owner}]`, colour: (row) => colourOf(row.owner) },
      { head: "Slots", isNumber: true, text: (row) => number(row.slots) },
      { head: "of slots", isNumber: true, text: (row) => part(row.share), share: (row) => row.share },
      { head: "Rows/s", isNumber: true, text: (row) => (row.rows ? number(row.rows) : "–") },
      { head: "of rows", isNumber: true, text: (row) => (row.rows ? part(row.load) : "–"), share: (row) => row.load },
    ];
  }

  #hottestColumns() {
    return [
      { head: "Slots", text: (row) => (row.first === row.last ? `${row.first}` : `${row.first} to ${row.last}`) },
      { head: "Instance", text: (row) => `${this.#operator}[${row.owner}]`, colour: (row) => colourOf(row.owner) },
      { head: "Rows/s", isNumber: true, text: (row) => number(row.rows) },
      { head: "of rows", isNumber: true, text: (row) => part(row.share), share: (row) => row.share },
    ];
  }
}

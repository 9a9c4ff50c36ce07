import { element, setText } from "../dom.js";
import { bytes, count, moment, names, number, percent, seconds } from "../format.js";
import { card, columns } from "../parts/card.js";
import { Table, Tiles } from "../parts/table.js";
import { eventsOf, whyLess } from "../parts/words.js";

export const title = "Pool";

const NEWEST = 20;
/** The states of a VM, in the order of its life. */
const STATES = ["ordered", "booting", "warm", "used", "stopping"];

/** The events of VMs and nodes that are shown, by what they mean. */
const EVENT_KINDS = {
  muted: ["vm ordered", "vm released", "pool resized"],
  good: ["vm ready", "node joined", "continued", "drained"],
  warn: ["node leaving", "notice", "stopped", "drain given up"],
  bad: ["node lost", "vm lost", "killed", "pool exhausted", "provider failed"],
};
const STATE_COLOURS = { used: "var(--good)", idle: "var(--muted)", leaving: "var(--warn)", lost: "var(--bad)" };

/** The VMs of a run, what they cost so far, and its nodes. */
export function mount(root) {
  const view = new PoolView();
  root.append(...view.nodes);
  return view;
}

class PoolView {
  #facts = new Tiles();
  #sentence = element("p", { class: "muted" });
  #vms = new Table("VMs by state", VM_COLUMNS, { empty: "No VM is known at this moment." });
  #costs = new Table("Cost by VM", COST_COLUMNS, { empty: "The cost of each VM is told at the end of the run." });
  #nodes = new Table("Nodes", NODE_COLUMNS, { empty: "No node is known at this moment." });
  #history = new Table("What happened to VMs and nodes", EVENT_COLUMNS, { empty: "Nothing yet." });

  constructor() {
    this.nodes = [
      this.#facts.node,
      columns(card("VMs by state", this.#vms.node), card("Cost by VM", this.#costs.node)),
      card("Nodes", this.#sentence, this.#nodes.node),
      card("What happened to VMs and nodes, newest first", this.#history.node),
    ];
  }

  update(model) {
    const nodes = nodesOf(model);
    this.#facts.show(factsOf(model, nodes));
    this.#vms.show(vmsOf(model.status?.vms ?? {}));
    this.#costs.show(model.live ? [] : costsOf(model.report?.summary?.vms ?? {}));
    const why = whyLess(model, "of nodes, only what they host is in its report");
    setText(this.#sentence, nodes.some((each) => each.cores) ? "" : why);
    this.#nodes.show(nodes);
    this.#history.show(eventsOf(model, ...Object.values(EVENT_KINDS).flat()).slice(-NEWEST).reverse());
  }
}

function factsOf(model, nodes) {
  const { status, report } = model;
  const cost = model.live ? status?.vm_seconds : model.isNow ? report?.summary?.vm_seconds : undefined;
  const used = nodes.reduce((sum, each) => sum + (each.cpu ?? 0), 0);
  const cores = nodes.reduce((sum, each) => sum + (each.cores ?? 0), 0);
  return [
    ["Cost so far", costText(cost)],
    ["Nodes", number(status?.nodes)],
    ["Of these idle", number(status?.idle_nodes)],
    ["CPU", cores ? `${number(used, 1)} of ${number(cores, 1)} cores` : "–"],
    ["Memory", nodes.some((each) => each.rss) ? bytes(nodes.reduce((sum, each) => sum + (each.rss ?? 0), 0)) : "–"],
  ];
}

function costText(cost) {
  if (cost === undefined) return "–";
  return cost < 3600 ? `${number(cost)} VM seconds` : `${number(cost / 3600, 2)} VM hours`;
}

// -- VMs --------------------------------------------------------------------------------------------------------------

const VM_COLUMNS = [
  { head: "State", text: (row) => row.state },
  { head: "VMs", isNumber: true, text: (row) => number(row.vms), share: (row) => row.share },
];

function vmsOf(vms) {
  const all = Object.values(vms).reduce((sum, each) => sum + each, 0) || 1;
  const place = (state) => (STATES.includes(state) ? STATES.indexOf(state) : STATES.length);
  const states = Object.keys(vms).sort((a, b) => place(a) - place(b));
  return states.map((state) => ({ state, vms: vms[state], share: vms[state] / all }));
}

const COST_COLUMNS = [
  { head: "VM", text: (row) => row.vm },
  { head: "VM seconds", isNumber: true, text: (row) => number(row.cost, 1), share: (row) => row.share },
];

function costsOf(vms) {
  const most = Math.max(1, ...Object.values(vms));
  const costs = Object.entries(vms).map(([vm, cost]) => ({ vm, cost, share: cost / most }));
  return costs.sort((a, b) => b.cost - a.cost);
}

// -- nodes ------------------------------------------------------------------------------------------------------------

const MEMORY_BAR = "The bar compares it with the node that has most";
const NODE_COLUMNS = [
  { head: "Node", text: (row) => row.name },
  { head: "State", text: (row) => row.state, colour: (row) => STATE_COLOURS[row.state] ?? "var(--muted)" },
  { head: "CPU", isNumber: true, text: cpuText, share: (row) => row.cpu / row.cores },
  { head: "Memory", title: MEMORY_BAR, isNumber: true, text: (row) => bytes(row.rss), share: (row) => row.memoryShare },
  { head: "of it state", isNumber: true, text: (row) => bytes(row.state_bytes) },
  { head: "Disk in, out", isNumber: true, text: (row) => flows(row.read, row.written) },
  { head: "Network in, out", isNumber: true, text: (row) => flows(row.received, row.sent) },
  { head: "Sends state", isLong: true, text: transfersText },
  { head: "Hosts", isLong: true, text: hostedText },
];

/** The nodes with what they host, the fullest first; of a past moment, only those that host something are known. */
function nodesOf(model) {
  const { status } = model;
  const hosted = Map.groupBy(status?.instances ?? [], (each) => each.node);
  const known = new Map((status?.hosts ?? []).map((each) => [each.name, each]));
  const all = new Set([...known.keys(), ...hosted.keys()]);
  const most = Math.max(1, ...[...known.values()].map((each) => each.rss));
  const nodes = [...all].map((name) => nodeOf(name, known.get(name), hosted.get(name) ?? [], most));
  return nodes.sort((a, b) => (b.cpu ?? 0) / (b.cores || 1) - (a.cpu ?? 0) / (a.cores || 1));
}

function nodeOf(name, known, hosted, most) {
  const instances = hosted.map((each) => `${each.operator}[${each.index}]`);
  return { name, state: "used", ...known, hosted: instances, memoryShare: known ? known.rss / most : 0 };
}

function hostedText({ hosted }) {
  return hosted.length ? `${number(hosted.length)}: ${names(hosted, 6)}` : "nothing";
}

function cpuText({ cpu, cores }) {
  return cores ? `${number(cpu, 2)} of ${number(cores, 1)} (${percent(cpu / cores)})` : "–";
}

function flows(into, out) {
  return into === undefined ? "–" : `${bytes(into)}/s, ${bytes(out)}/s`;
}

function transfersText({ transfers = [] }) {
  return transfers.map((each) => `${each.kind} to ${each.peer}: ${bytes(each.nbytes)}`).join("; ") || "–";
}

const EVENT_COLUMNS = [
  { head: "At", text: (row) => moment(row.at) },
  { head: "What", text: (row) => row.kind, colour: eventColour },
  { head: "Who", text: (row) => row.vm ?? row.node ?? "" },
  { head: "Took", isNumber: true, text: (row) => (row.seconds === undefined ? "" : seconds(row.seconds)) },
  { head: "Details", isLong: true, text: eventText },
];

function eventText({ kind, detail, hosted = [] }) {
  const isLoss = kind === "node lost" && hosted.length > 0;
  const lost = isLoss ? `it hosted ${count(hosted.length, "instance")}: ${names(hosted)}` : "";
  return [detail, lost].filter(Boolean).join("; ");
}

function eventColour({ kind }) {
  return `var(--${Object.keys(EVENT_KINDS).find((meaning) => EVENT_KINDS[meaning].includes(kind))})`;
}

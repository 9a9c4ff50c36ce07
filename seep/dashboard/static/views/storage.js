import { element, setText } from "../dom.js";
import { age, bytes, count, moment, number, seconds } from "../format.js";
import { card } from "../parts/card.js";
import { Table, Tiles } from "../parts/table.js";
import { eventsOf, isPresent, whyLess } from "../parts/words.js";

export const title = "Checkpoints";

const UNKNOWN = "unknown";
const NEWEST = 50;

/** Checkpoints in storage, backups on nodes, and what goes to disks. */
export function mount(root, app) {
  const view = new StorageView(app);
  root.append(...view.nodes);
  return view;
}

class StorageView {
  #sentence = element("p");
  #failure = element("p", { class: "callout bad", hidden: true });
  #checkpoints = new Table("Checkpoints in storage", CHECKPOINT_COLUMNS, { empty: "" });
  #backupsSentence = element("p", { class: "muted" });
  #backups = new Table("Backups of instances", BACKUP_COLUMNS, { empty: "No instance is known at this moment." });
  #disk = new Tiles();
  #disks = new Table("Disks of nodes", DISK_COLUMNS, { empty: "No node tells of its disk at this moment." });

  constructor() {
    this.nodes = [
      card("Checkpoints in storage", this.#sentence, this.#failure, this.#checkpoints.node),
      card("Backups and replicas", this.#backupsSentence, this.#backups.node),
      card("Disk", this.#disk.node, this.#disks.node),
    ];
  }

  update(model) {
    const stored = checkpointsOf(model);
    this.#checkpoints.show(stored.slice(0, NEWEST));
    setText(this.#sentence, checkpointSentence(model, stored));
    this.#showFailure(model);
    this.#showBackups(model);
    this.#showDisks(model.status?.hosts ?? []);
  }

  #showFailure(model) {
    const last = eventsOf(model, "checkpoint failed", "compaction failed", "cleaning failed").at(-1);
    this.#failure.hidden = !last;
    if (!last) return;
    const isPast = eventsOf(model, "persisted", "savepoint").some((each) => each.at > last.at);
    const since = isPast ? "A later checkpoint was stored." : "None was stored since.";
    const what = `${last.kind}: ${last.detail ?? UNKNOWN}`;
    setText(this.#failure, `Last failure, ${age(model.at - last.at)}: ${what}. ${since}`);
  }

  #showBackups(model) {
    const placed = placedBackups(model);
    const owners = (model.status?.instances ?? []).filter((each) => isBackedUp(model, each));
    setText(this.#backupsSentence, backupSentence(model, placed, owners));
    const late = eventsOf(model, "replica late");
    this.#backups.show(owners, (each) => backupOf(each, placed, late, model.at));
  }

  #showDisks(hosts) {
    this.#disks.show([...hosts].sort((a, b) => b.written + b.read - a.written - a.read));
    this.#disk.show([
      ["Read from disks", hosts.length ? `${bytes(total(hosts, "read"))}/s` : "–"],
      ["Written to disks", hosts.length ? `${bytes(total(hosts, "written"))}/s` : "–"],
    ]);
  }
}

// -- checkpoints in storage -------------------------------------------------------------------------------------------

const CHECKPOINT_COLUMNS = [
  { head: "Checkpoint", text: (row) => number(row.id) },
  { head: "Kind", text: (row) => (row.isSavepoint ? "savepoint, kept until it is disposed of" : "checkpoint") },
  { head: "Epoch", isNumber: true, text: (row) => number(row.epoch) },
  { head: "Stored", isNumber: true, text: (row) => age(row.age) },
  { head: "State with its chain", isNumber: true, text: (row) => bytes(row.bytes) },
  { head: "Took", isNumber: true, text: (row) => seconds(row.seconds) },
  { head: "Chain", isLong: true, text: (row) => row.chain },
];

/** Checkpoints by number, the newest first: those of the status and those of events. */
function checkpointsOf(model) {
  const found = new Map();
  for (const each of eventsOf(model, "persisted", "savepoint")) {
    const known = { seconds: each.seconds, age: model.at - each.at, chain: UNKNOWN };
    found.set(each.numbers.id, { ...each.numbers, ...known, isSavepoint: each.kind === "savepoint" });
  }
  for (const each of isPresent(model) ? (model.status?.checkpoints ?? []) : []) {
    const known = found.get(each.id) ?? { chain: UNKNOWN };
    found.set(each.id, { ...known, ...each, isSavepoint: each.is_savepoint });
  }
  for (const each of eventsOf(model, "compacted")) {
    const { seconds: took, at, id, origin } = each;
    const known = found.get(id) ?? { id, seconds: took, age: model.at - at, epoch: found.get(origin)?.epoch };
    const chain = `full for ${each.operators.join(", ")}: merged from checkpoint ${origin}`;
    found.set(id, { ...known, chain });
  }
  return [...found.values()].sort((a, b) => b.id - a.id);
}

function checkpointSentence(model, stored) {
  if (!model.status) return "";
  if (!stored.length && !isPresent(model)) return "No checkpoint was stored in this run until then.";
  if (!stored.length) return "No checkpoint is stored: the run has no storage, or the first one is not complete yet.";
  const savepoints = stored.filter((each) => each.isSavepoint).length;
  const [{ id, age: stood, bytes: size }] = stored;
  const counts = `${count(stored.length, "checkpoint")}, ${count(savepoints, "savepoint")} among them`;
  const last = `The last one, ${number(id)}, was stored ${age(stood)}${size ? `, with ${bytes(size)} of state` : ""}.`;
  const chains = "How many deltas a checkpoint builds on is known only where chains were merged.";
  return `This run has stored ${counts}; old ones may be removed by now. ${last} ${chains}`;
}

// -- backups ----------------------------------------------------------------------------------------------------------

const BACKUP_COLUMNS = [
  { head: "Instance", text: (row) => row.name },
  { head: "On", text: (row) => row.node },
  { head: "State", isNumber: true, text: (row) => bytes(row.state) },
  { head: "Outbox", isNumber: true, text: (row) => bytes(row.outbox) },
  { head: "Copies", isNumber: true, text: (row) => row.copies },
  { head: "Kept by", isLong: true, text: (row) => row.holders },
  { head: "Holders chosen", isNumber: true, text: (row) => row.chosen },
  { head: "Late", isLong: true, text: (row) => row.late },
];

function isBackedUp(model, instance) {
  return model.run?.stateful?.includes(instance.operator);
}

/** The newest choice of holders of each instance. */
function placedBackups(model) {
  const placed = new Map();
  for (const each of eventsOf(model, "replicas placed")) {
    for (const [instance, holders] of Object.entries(each.groups ?? {})) placed.set(instance, { holders, at: each.at });
  }
  return placed;
}

function backupOf(instance, placed, lateness, now) {
  const name = nameOf(instance);
  const known = placed.get(name);
  const isOf = (each) => each.instance === name && each.at >= (known?.at ?? 0);
  const late = lateness.findLast(isOf);
  return {
    name,
    node: instance.node,
    state: instance.state_bytes,
    outbox: instance.outbox_bytes,
    copies: known ? number(known.holders.length) : UNKNOWN,
    holders: known ? known.holders.join(", ") : UNKNOWN,
    chosen: known ? age(now - known.at) : UNKNOWN,
    late: late ? `${late.detail} (${moment(late.at)})` : known ? "none" : UNKNOWN,
  };
}

function nameOf(instance) {
  return `${instance.operator}[${instance.index}]`;
}

function backupSentence(model, placed, owners) {
  if (!owners.length) return "No operator of this query keeps state, so there is nothing to back up.";
  const transfers = (model.status.hosts ?? []).flatMap((host) => host.transfers ?? []);
  const sending = transfers.filter((each) => each.kind === "backup");
  const now = sending.length ? ` Being sent now: ${bytes(total(sending, "nbytes"))}.` : "";
  const aged = "The age of backups is unknown.";
  if (!placed.size) return `Who keeps backups is known only with the backup strategy “replicas”. ${aged}${now}`;
  return `${whyLess(model, "these are the holders at that time")} ${aged}${now}`.trim();
}

// -- disk -------------------------------------------------------------------------------------------------------------

const DISK_COLUMNS = [
  { head: "Node", text: (row) => row.name },
  { head: "Read", isNumber: true, text: (row) => `${bytes(row.read)}/s` },
  { head: "Written", isNumber: true, text: (row) => `${bytes(row.written)}/s` },
  { head: "Read so far", isNumber: true, text: (row) => bytes(row.resources?.read) },
  { head: "Written so far", isNumber: true, text: (row) => bytes(row.resources?.written) },
];

function total(items, name) {
  return items.reduce((sum, each) => sum + (each[name] ?? 0), 0);
}

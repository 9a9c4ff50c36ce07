import { count, names } from "../format.js";

/**
 * The actions on a run: the name `do` of each request, its label, its fields, the words of its button, a sentence that
 * says what will happen, and the kinds of event with which it ends. A field is one of `operator`, `stateful`, `node`,
 * `to`, `strategy` and `savepoint`.
 */
export const ACTIONS = [
  {
    do: "scale",
    label: "Scale",
    fields: ["operator", "to"],
    button: ({ operator, to }) => `Scale ${operator} to ${to}`,
    says({ operator, to }, model) {
      const now = instancesOf(model, operator).length;
      if (to === now) return `${operator} has ${count(now, "instance")} already.`;
      const how = to > now ? "New instances start on free nodes" : "Instances hand their slots over and end";
      const goes = `${operator} goes from ${now} to ${count(to, "instance")}. ${how}; rows go on, with higher latency.`;
      return `${goes} A policy may change the number again later.`;
    },
    body: ({ operator, to }) => ({ operator, to }),
    ends: [
      ...["scaled out", "scaled in", "nothing to scale"],
      ...["scaling refused", "scaling given up", "scaling called off", "scaling replaced"],
    ],
  },
  {
    do: "migrate",
    label: "Migrate",
    fields: ["operator", "to", "strategy"],
    button: ({ operator, to }) => `Migrate ${operator} to ${to}`,
    says({ operator, to, strategy }) {
      const how = strategy === DEFAULT ? "in the way that the run's settings say" : STRATEGIES[strategy];
      return `The slots of ${operator} move so that ${count(to, "instance")} own them, ${how}. Rows go on meanwhile.`;
    },
    body: ({ operator, to, strategy }) => ({ operator, to, ...(strategy === DEFAULT ? {} : { strategy }) }),
    ends: ["migrated", "migration cancelled", "migration refused"],
  },
  {
    do: "balance",
    label: "Balance",
    fields: ["operator"],
    button: ({ operator }) => `Balance ${operator}`,
    says: ({ operator }) =>
      `Rows of ${operator} are counted by slot for a while; then slots move once from full instances to others. ` +
      "One key that is too hot is not split by this.",
    body: ({ operator }) => ({ operator }),
    ends: ["balanced", "balancing called off", "nothing to balance", "balancing failed"],
  },
  {
    do: "drain",
    label: "Drain",
    fields: ["node"],
    button: ({ node }) => `Drain ${node}`,
    says({ node }, model) {
      const hosted = hostedBy(model, node);
      const moved = hosted.length ? `${names(hosted)} move from ${node} to other nodes` : `${node} hosts nothing`;
      return `${moved}; then its VM is returned. ${node} gets nothing new, and this cannot be undone.`;
    },
    body: ({ node }) => ({ node }),
    ends: ["drained", "drain given up"],
  },
  {
    do: "savepoint",
    label: "Savepoint",
    fields: [],
    button: () => "Take a savepoint",
    says: () =>
      "The state of the whole query is stored after one epoch, and kept until somebody disposes of it. Rows go on.",
    body: () => ({}),
    answered: ({ id }) => `Savepoint ${id} is complete.`,
    ends: [],
  },
  {
    do: "checkpoint",
    label: "Checkpoint",
    fields: ["stateful"],
    button: () => "Take checkpoints",
    says({ stateful }) {
      const who = stateful === EVERY ? "All instances that keep state" : `The instances of ${stateful}`;
      return `${who} take a checkpoint now and back it up, before their turn.`;
    },
    body: ({ stateful }) => (stateful === EVERY ? {} : { operator: stateful }),
    answered: () => "Checkpoints were asked for.",
    ends: [],
  },
  {
    do: "finish",
    label: "Finish",
    fields: [],
    isGrave: true,
    button: () => "Finish the run",
    says: () =>
      "The sources read no further rows. All rows that were read are processed and committed, and then the run is " +
      "over. This cannot be undone.",
    body: () => ({}),
    answered: () => "The input ends; the run is over when all of it is committed.",
    ends: [],
  },
  {
    do: "stop",
    label: "Stop",
    fields: ["savepoint"],
    isGrave: true,
    button: () => "Stop the run",
    says({ savepoint }) {
      const stops = savepoint ? "A savepoint is taken, and then the run stops" : "The run stops";
      const later = "With storage, a later run continues with what is not committed; without, it begins again.";
      return `${stops} at once, before the end of its input. ${later}`;
    },
    body: ({ savepoint }) => ({ savepoint }),
    answered: () => "The run stops.",
    ends: [],
  },
];

/** The choice that leaves the strategy to the settings of the run. */
export const DEFAULT = "as the run's settings say";
/** The choice of all operators. */
export const EVERY = "all operators with state";

export const STRATEGIES = {
  [DEFAULT]: "",
  "all-at-once": "all at once: it ends soonest, with the longest pause",
  fluid: "one slot at a time: the shortest pauses, and the most of them",
  batched: "some slots at a time, from all pairs of instances alike",
  optimised: "some slots at a time, from pairs of instances that have none in common",
};

/** The names of an operator's instances now. */
export function instancesOf(model, operator) {
  const instances = (model.newest ?? model.status)?.instances ?? [];
  return instances.filter((each) => each.operator === operator).map((each) => `${each.operator}[${each.index}]`);
}

/** The names of the live nodes. */
export function nodesOf(model) {
  const { hosts = [], instances = [] } = model.newest ?? model.status ?? {};
  const live = hosts.filter((each) => each.state !== "lost").map((each) => each.name);
  return [...new Set([...live, ...instances.map((each) => each.node)])];
}

function hostedBy(model, node) {
  const instances = (model.newest ?? model.status)?.instances ?? [];
  return instances.filter((each) => each.node === node).map((each) => `${each.operator}[${each.index}]`);
}

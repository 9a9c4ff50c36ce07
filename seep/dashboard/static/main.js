/** Starts the page: loads the run, follows it, and shows one view at a time. */

import { ApiError, makeApi } from "./api.js";
import { element, setChildren } from "./dom.js";
import { makeDialogs } from "./dialogs.js";
import { makeHeader } from "./header.js";
import { makeShortcuts } from "./shortcuts.js";
import { makeStore } from "./store.js";
import { makeTabs } from "./tabs.js";
import { makeTimeBar } from "./timebar.js";
import * as actions from "./views/actions.js";
import * as letters from "./views/letters.js";
import * as logs from "./views/logs.js";
import * as overview from "./views/overview.js";
import * as pool from "./views/pool.js";
import * as slots from "./views/slots.js";
import * as state from "./views/state.js";
import * as storage from "./views/storage.js";

/** The tabs in order: the name in the address of the page, and the view. */
const TABS = [
  ["overview", overview],
  ["slots", slots],
  ["checkpoints", storage],
  ["pool", pool],
  ["dead-letters", letters],
  ["state", state],
  ["logs", logs],
];

/** What stands in the header on every tab. */
const PARTS = [actions];

/** Milliseconds from the end of a change until the report is asked for its spans: several may end at once. */
const SETTLES = 1500;
/** The most samples of the report that is loaded. */
const POINTS = 600;
/** Milliseconds after which a run that could not be reached is asked again. */
const AGAIN = 3000;
/** The phases of a run that is not over. */
const ALIVE = new Set(["starting", "running"]);
/** The parts of the report that are asked for again after a change. */
const RENEWED = ["summary", "latencies", "migrations", "spans", "totals"];

const api = makeApi();
const store = makeStore();
const dialogs = makeDialogs(document.getElementById("notices"));

const app = {
  api,
  store,
  confirm: dialogs.confirm,
  notify: dialogs.notify,
  role: "viewer",
  acts: [],
  /** Selects, and shows a selected change or operator where it is drawn. */
  select(what) {
    store.select(what);
    if (what.change || what.operator || what.instance) tabs.open("overview");
  },
};

const tabs = makeTabs(document.getElementById("tabs"), document.getElementById("panels"), TABS, app);
let renewal = null;

async function start() {
  try {
    await load();
  } catch (error) {
    if (error.status === 401) location.assign("/login");
    else setChildren(document.getElementById("panels"), problem(error));
    if (error.status === 0) setTimeout(start, AGAIN);
  }
}

async function load() {
  const run = await api.run();
  const answer = await api.get("/status");
  const report = await api.get("/report", { points: POINTS });
  Object.assign(app, { role: run.role ?? "viewer", acts: run.acts ?? [] });
  document.title = `${run.query} – seep`;
  document.getElementById("starting")?.remove();
  store.load(run, { ...answer, new: [] }, report);
  const header = makeHeader(document.getElementById("top"), app, PARTS);
  const bar = makeTimeBar(document.getElementById("time-bar"), app);
  tabs.begin();
  makeShortcuts({ tabs, bar, header, dialogs });
  store.subscribe((model) => {
    header.update(model);
    bar.update(model);
    tabs.update(model);
  });
  store.changed();
  if (run.is_live) follow();
}

function follow() {
  api.follow({
    status: hear,
    connected: () => store.model.connection.state === "connected" || store.connect("connected"),
    lost,
    unreachable: (error) => dialogs.notify(error, "bad"),
    over: end,
  });
}

/** The connection has ended: the run may be out of reach, or the session may be over. */
async function lost(since) {
  store.connect("lost", since);
  await api.run().catch((error) => error.status === 401 && location.assign("/login"));
}

async function hear(data) {
  if (store.missed(data)) {
    const caught = await attempt(() => api.get("/status", { after: store.number }));
    if (caught && store.hear(caught)) renewLater();
  }
  if (store.hear(data)) renewLater();
}

function renewLater() {
  renewal ??= setTimeout(() => {
    renewal = null;
    renew();
  }, SETTLES);
}

async function renew() {
  const parts = await attempt(() => api.get("/report", { only: RENEWED }));
  if (parts) store.renew(parts);
}

/** The stream has ended: the run is over, or its server is, and the run goes on. */
async function end() {
  const run = await attempt(() => api.run());
  if (ALIVE.has((run ?? store.model).phase)) {
    store.connect("lost", Date.now());
    follow();
    return;
  }
  store.connect("over");
  app.acts = run?.acts ?? [];
  store.end(run ?? { ...store.model.run, is_live: false, phase: store.model.phase });
  await renew();
}

/** Returns the answer, or null after the user was told why there is none. */
async function attempt(ask) {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status !== 0) dialogs.notify(error.message, "bad");
    return null;
  }
}

function problem(error) {
  console.error(error);
  return element("p", { class: "note refused", role: "alert" }, `The run cannot be shown: ${error.message}`);
}

start();

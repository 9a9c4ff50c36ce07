/** The model of the page: the run, its report so far, and the moment that is shown. Views never write it. */

import { changesOf } from "./changes.js";
import { placeAt, statusAt, wrongAt } from "./past.js";

/** The most figures of instances that are kept in the series of a live run; older samples are thinned out first. */
const MOST_FIGURES = 400_000;
const MOST_SAMPLES = 4_000;
const MOST_EVENTS = 20_000;
/** Kinds of event that end something of which the report has spans or totals. */
export const ENDINGS = new Set([
  "scaled out", "scaled in", "scaling refused", "scaling called off", "scaling given up", "migrated",
  "migration cancelled",
  "migration refused", "balanced", "balancing called off", "balancing failed", "recovered", "drained", "drain given up",
  "persisted", "savepoint", "checkpoint failed", "move complete", "split effective", "finished", "failed", "halted",
]);

/** Makes the store. `store.model` is what views show; listeners are called at most once per frame. */
export function makeStore() {
  const listeners = new Set();
  const model = {
    run: null, report: null, live: false, phase: "starting", failure: "",
    /** Whether the moment is now; of a finished run, its end. */
    isNow: true,
    begin: 0, end: 0, at: 0,
    status: null, wrong: [], series: [], events: [], spans: [], changes: [], latencies: [],
    /** The status of now, and what is wrong now. */
    newest: null, wrongNow: [],
    selected: { operator: null, instance: null, change: null },
    connection: { state: "connecting", since: null },
  };
  let number = -1;
  let isScheduled = false;

  function changed() {
    if (isScheduled) return;
    isScheduled = true;
    const tell = () => {
      isScheduled = false;
      for (const listener of listeners) listener(model);
    };
    // frames stand still in a hidden window, where nothing need be drawn
    requestAnimationFrame(tell);
  }

  function show() {
    if (model.isNow) {
      model.at = model.end;
      model.status = model.live || model.series.length === 0 ? model.newest : lastStatus();
      model.wrong = model.wrongNow;
    } else {
      model.status = pastStatus(model.at);
      model.wrong = wrongAt(model.status, model.events, model.at);
    }
    changed();
  }

  /** The status of a run that is over: what its report tells of its end, and what only its status has. */
  function lastStatus() {
    const told = pastStatus(model.end);
    const { newest } = model;
    return { ...told, ...newest, instances: newest?.instances?.length ? newest.instances : told?.instances ?? [] };
  }

  function pastStatus(at) {
    const status = statusAt(model.series, model.events, model.run, at);
    return status && { ...status, full: model.newest?.full };
  }

  function retell() {
    model.latencies = latenciesOf(model.report, model.series);
    model.changes = changesOf(model.spans, model.events, model.latencies);
  }

  return {
    model,
    /** The number of the newest event that is known. */
    get number() {
      return number;
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    /** Takes in all that is known at the beginning. */
    load(run, answer, report) {
      Object.assign(model, { run, report, live: run.is_live, phase: run.phase, failure: run.failure ?? "" });
      model.series = report.series;
      model.events = report.events;
      model.spans = report.spans ?? [];
      hear(answer);
      model.begin = Math.min(0, model.series[0]?.at ?? 0);
      model.end = Math.max(model.series.at(-1)?.at ?? 0, model.live ? model.newest?.at ?? 0 : 0);
      retell();
      show();
    },
    /** Takes in news of the stream; returns whether something has ended of which the report tells more. */
    hear(data) {
      const hasEnded = data.new.some((event) => ENDINGS.has(event.kind));
      hear(data);
      if (data.new.length) retell();
      show();
      return hasEnded;
    },
    /** Whether events were missed before this news. */
    missed: (data) => data.after > number,
    /** Takes in parts of a newer report. */
    renew(parts) {
      model.report = { ...model.report, ...parts };
      model.spans = model.report.spans ?? [];
      retell();
      show();
    },
    /** Notes that the run is over. */
    end(run) {
      Object.assign(model, { run, live: false, phase: run.phase, failure: run.failure ?? "" });
      show();
    },
    /** Shows another moment; null is now, or the end. */
    seek(at) {
      model.isNow = at === null || at >= model.end;
      model.at = model.isNow ? model.end : Math.max(at, model.begin);
      show();
    },
    /** Selects an operator, an instance or a change, or several; what is null is not selected any more. */
    select(what) {
      model.selected = { ...model.selected, ...what };
      changed();
    },
    connect(state, since = null) {
      model.connection = { state, since };
      changed();
    },
    changed,
  };

  function hear(data) {
    model.newest = data.status;
    model.wrongNow = data.wrong;
    model.phase = data.phase;
    model.failure = data.failure;
    addEvents(data.new);
    number = Math.max(number, data.number);
    addSample(data.sample);
    if (model.live) model.end = Math.max(model.end, data.status.at);
  }

  function addEvents(events) {
    const since = events.length ? events[0].at - 5 : 0;
    const known = new Set(
      model.events.slice(Math.max(0, placeAt(model.events, since))).map((each) => JSON.stringify(each))
    );
    const fresh = events.filter((each) => !known.has(JSON.stringify(each)));
    if (!fresh.length) return;
    model.events = [...model.events, ...fresh].sort((one, other) => one.at - other.at).slice(-MOST_EVENTS);
  }

  function addSample(sample) {
    if (!sample || sample.at <= (model.series.at(-1)?.at ?? -Infinity)) return;
    model.series.push(sample);
    if ("p50" in sample.latency) model.latencies.push(recent(sample));
    const instances = Math.max(1, Object.keys(sample.instances).length);
    if (model.series.length > Math.min(MOST_SAMPLES, Math.max(200, MOST_FIGURES / instances))) thin();
  }

  /** Leaves out every second sample of the older half. */
  function thin() {
    const half = model.series.length >> 1;
    model.series = model.series.filter((_, place) => place >= half || place % 2 === 0);
  }
}

/** The latencies over time: those of all epochs where the report has them, later those of the samples. */
function latenciesOf(report, series) {
  const told = report?.latencies?.timeline ?? [];
  const until = told.at(-1)?.at ?? -Infinity;
  const newer = series.slice(placeAt(series, until) + 1).filter((each) => "p50" in each.latency);
  return [...told, ...newer.map(recent)];
}

/** The latency of a sample, which is that of some seconds before it: it cannot tell what a change has cost. */
function recent(sample) {
  return { at: sample.at, isRecent: true, ...sample.latency };
}

/** Requests to the run, and its stream of news. All go to the server that the page came from. */

const BASE = "/api/v1";
/** Seconds without news after which the stream is opened again; it brings news every second. */
const SILENT = 20;
/** Seconds before the stream is opened again: the first time, and at most. */
const FIRST_WAIT = 1;
const LONGEST_WAIT = 15;
/** Seconds after which a request is given up: one for figures, and one that acts: a savepoint takes two minutes. */
const PATIENCE = 60;
const ACTING_PATIENCE = 130;

/** A request that was refused or could not be made. `status` is that of HTTP, 0 if the server was not reached. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/** Makes the client. Its `get` and `post` return the answer, or throw an ApiError. */
export function makeApi() {
  let csrf = null;

  async function ask(url, options, { signal, patience = PATIENCE } = {}) {
    const limit = AbortSignal.timeout(1000 * patience);
    const given = { credentials: "same-origin", signal: signal ? AbortSignal.any([signal, limit]) : limit, ...options };
    let response;
    try {
      response = await fetch(url, given);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(limit.aborted ? `the run has not answered for ${patience} s` : "the run cannot be reached", 0);
    }
    return answerOf(response);
  }

  function post(path, body = {}, { signal, patience = ACTING_PATIENCE } = {}) {
    const headers = { "Content-Type": "application/json", "X-Seep-Csrf": csrf ?? "" };
    return ask(BASE + path, { method: "POST", headers, body: JSON.stringify(body) }, { signal, patience });
  }

  function get(path, parameters = {}, given = {}) {
    const query = queryOf(parameters);
    return ask(BASE + path + (query ? `?${query}` : ""), {}, given);
  }

  return {
    get,
    post,
    /** Asks what the run is, and notes what later requests need. */
    async run() {
      const run = await get("/run");
      csrf = run.csrf ?? null;
      return run;
    },
    /** Ends the session of this browser. */
    async logOut() {
      await ask("/logout", { method: "POST", headers: { "X-Seep-Csrf": csrf ?? "" } });
      location.assign("/login");
    },
    follow: (listener) => follow(`${BASE}/stream`, listener),
  };
}

function queryOf(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined) continue;
    for (const each of [value].flat()) query.append(name, each);
  }
  return String(query);
}

async function answerOf(response) {
  let answer = null;
  try {
    answer = await response.json();
  } catch {
    if (response.ok) throw new ApiError("the answer of the run broke off", 0);
  }
  if (response.ok) return answer;
  throw new ApiError(answer?.error ?? `the server has answered with ${response.status}`, response.status);
}

/**
 * Follows the stream, and opens it again when it ends: the listener has `status(data)`, `over()`, `connected()`,
 * `unreachable(error)` if the server has lost the run, and `lost(since)`, which is called with the time of the last
 * news if the page has lost the server. Returns a function that ends it.
 */
function follow(url, listener) {
  let source = null;
  let wait = FIRST_WAIT;
  let heard = Date.now();
  let timer = null;
  let isClosed = false;

  function open() {
    source = new EventSource(url);
    source.addEventListener("status", (event) => {
      heard = Date.now();
      wait = FIRST_WAIT;
      listener.connected();
      listener.status(JSON.parse(event.data));
    });
    source.addEventListener("lost", (event) => listener.unreachable(JSON.parse(event.data).error));
    source.addEventListener("over", () => {
      close();
      listener.over();
    });
    source.addEventListener("error", again);
  }

  function again() {
    source.close();
    if (isClosed || timer !== null) return;
    listener.lost(heard);
    timer = setTimeout(() => {
      timer = null;
      open();
    }, 1000 * wait * (0.75 + Math.random() / 2));
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }

  const watch = setInterval(() => {
    if (Date.now() - heard > 1000 * SILENT) again();
  }, 5000);

  function close() {
    isClosed = true;
    clearInterval(watch);
    clearTimeout(timer);
    source.close();
  }

  open();
  return close;
}

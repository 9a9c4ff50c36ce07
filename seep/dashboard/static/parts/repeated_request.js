/** Asks a question again and again while it is wanted: one request at a time, and none that nobody waits for. */
export class RepeatedRequest {
  #ask;
  #every;
  #answered;
  #refused;
  #isWanted = false;
  #abort = null;
  #timer = null;

  /** `ask` gets an AbortSignal; `every` is the pause in milliseconds between an answer and the next request. */
  constructor(ask, { every, answered, refused }) {
    this.#ask = ask;
    this.#every = every;
    this.#answered = answered;
    this.#refused = refused;
  }

  get isWanted() {
    return this.#isWanted;
  }

  start() {
    if (this.#isWanted) return;
    this.#isWanted = true;
    this.#send();
  }

  stop() {
    this.#isWanted = false;
    this.#abort?.abort();
    clearTimeout(this.#timer);
  }

  /** Asks at once, as after a change of what is asked for; the answer to the earlier request is dropped. */
  again() {
    if (!this.#isWanted) return;
    this.stop();
    this.start();
  }

  async #send() {
    const abort = new AbortController();
    this.#abort = abort;
    const [tell, told] = await this.#outcome(abort.signal);
    if (abort.signal.aborted) return;
    const isMore = tell(told) === true;
    if (!abort.signal.aborted) this.#timer = setTimeout(() => this.#send(), isMore ? 0 : this.#every);
  }

  async #outcome(signal) {
    try {
      return [this.#answered, await this.#ask(signal)];
    } catch (error) {
      return [this.#refused, error];
    }
  }
}

/**
 * Reads one resource again and again: while the page is visible, one request at a time, less often the more tries fail.
 */

import { Refusal, Silence, connection, token } from './api.js';

const SLOWEST_MS = 15_000;

export class Poll {
  #timer = 0;

  #failures = 0;

  #busy = false;

  #again = false;

  #running = false;

  /** Counts what was asked for, so that an answer to an older question is dropped. */
  #question = 0;

  /**
   * @template T
   * @param {number} every milliseconds
   * @param {() => Promise<T>} load
   * @param {(found: T) => void} show
   * @param {(error: Error) => void} fail
   */
  constructor(every, load, show, fail) {
    this.every = every;
    this.load = load;
    this.show = show;
    this.fail = fail;
    document.addEventListener('visibilitychange', () => this.#running && (document.hidden ? this.#pause() : this.now()));
    connection.addEventListener('answered', () => this.#running && this.#failures > 0 && this.now());
    token.changed.addEventListener('changed', () => this.#running && this.now());
  }

  start() {
    this.#running = true;
    this.#failures = 0;
    this.now();
  }

  stop() {
    this.#running = false;
    this.#question += 1;
    this.#pause();
  }

  /** Something else is wanted, or it has changed: what is under way answers another question. */
  renew() {
    this.#question += 1;
    this.#failures = 0;
    this.now();
  }

  /** Read now, or as soon as the request under way is answered. */
  now() {
    this.#pause();
    if (!this.#running) return;
    if (this.#busy) this.#again = true;
    else void this.#read();
  }

  #pause() {
    clearTimeout(this.#timer);
  }

  /** Milliseconds until the next try. */
  #delay() {
    return Math.max(this.every, Math.min(SLOWEST_MS, this.every * 2 ** this.#failures));
  }

  async #read() {
    const question = this.#question;
    this.#busy = true;
    this.#again = false;
    try {
      const found = await this.load();
      if (question === this.#question) {
        this.#failures = 0;
        this.show(found);
      }
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof Silence)) reportError(error); // a fault of the page itself
      if (question === this.#question) {
        this.#failures += 1;
        this.fail(/** @type {Error} */ (error));
      }
    } finally {
      this.#busy = false;
    }
    if (this.#again) this.now();
    else if (this.#running && !document.hidden) this.#timer = setTimeout(() => this.now(), this.#delay());
  }
}

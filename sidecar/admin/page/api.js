/**
 * The node's REST interface. Shows whether the node answers at all (`connection`), and keeps the token: in this tab's
 * session storage, sent as a header and nowhere else.
 */

const TOKEN = 'sidecar-admin-token';
const READ_MS = 10_000;
const WRITE_MS = 70_000;

/** The node answered, and said no. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Nobody answered in time. */
export class Silence extends Error {}

/** Events `answered` and `silent`, each time the one follows upon the other. */
class Connection extends EventTarget {
  /** @type {number | null} */
  last = null;

  silent = false;

  heard() {
    const was = this.silent;
    this.last = Date.now();
    this.silent = false;
    if (was) this.dispatchEvent(new Event('answered'));
  }

  missed() {
    const was = this.silent;
    this.silent = true;
    if (!was) this.dispatchEvent(new Event('silent'));
  }
}

export const connection = new Connection();

export const token = {
  /** Dispatches `changed` with each new token. */
  changed: new EventTarget(),
  /** @returns {string} */
  get: () => sessionStorage.getItem(TOKEN) ?? '',
  /** @param {string} value */
  set: (value) => {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
    token.changed.dispatchEvent(new Event('changed'));
  },
};

/**
 * Ask the node. Paths are relative to the page, so that it also works below a path of somebody's reverse proxy.
 *
 * @param {string} method
 * @param {string} path without a slash in front: `v1/status`
 * @param {{body?: unknown, generation?: number | bigint}} [more] `generation`: only if that is still the current one
 * @returns {Promise<any>} the decoded answer; null where there is none
 * @throws {Refusal | Silence}
 */
export async function call(method, path, more = {}) {
  const headers = new Headers({ Accept: 'application/json' });
  const writes = method !== 'GET';
  if (token.get()) headers.set('Authorization', `Bearer ${token.get()}`);
  if (more.body !== undefined) headers.set('Content-Type', 'application/json');
  if (more.generation !== undefined) headers.set('If-Match', `"${more.generation}"`);
  const body = more.body === undefined ? undefined : JSON.stringify(more.body);
  let answer;
  let text;
  try {
    const signal = AbortSignal.timeout(writes ? WRITE_MS : READ_MS);
    answer = await fetch(path, { method, headers, body, signal, cache: 'no-store', credentials: 'same-origin' });
    text = await answer.text();
  } catch (error) {
    connection.missed();
    throw new Silence(error instanceof DOMException && error.name === 'TimeoutError' ? 'the node did not answer in time' : 'the node does not answer');
  }
  connection.heard();
  return read(answer, text);
}

/** @param {string} path */
export const get = (path) => call('GET', path);

/**
 * A path of names, each escaped.
 *
 * @param {...string} names
 */
export function path(...names) {
  return names.map(encodeURIComponent).join('/');
}

/**
 * @param {Response} answer
 * @param {string} text
 */
function read(answer, text) {
  let found = null;
  try {
    found = text ? decoded(text) : null;
  } catch {
    throw new Refusal(answer.status, `${answer.status} ${answer.statusText}: the answer is not JSON; is this the node's admin port?`);
  }
  if (!answer.ok) throw new Refusal(answer.status, found?.message ?? `${answer.status} ${answer.statusText}`);
  return found;
}

/**
 * JSON with every whole number as it was written.
 *
 * @param {string} text
 * @returns {any}
 */
export const decoded = (text) => JSON.parse(text, exact);

/**
 * Generations and sequence ids go up to 2^63 - 1, a number here is exact up to 2^53: beyond, it is a BigInt, where the
 * browser shows how it was written.
 *
 * @param {string} _key
 * @param {unknown} value
 * @param {{source?: string}} [context]
 */
function exact(_key, value, context) {
  const cut = typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value);
  return cut && context?.source ? BigInt(context.source) : value;
}

/**
 * What happens, as it happens: the stream of `/v1/events`, with the newest of what happened before.
 *
 * A node has few places for readers, and a browser few connections to one node: a page that nobody looks at gives both
 * back and resumes where it was. A refusal is shown and tried again slowly; everything else on the page goes on without.
 */

import { connection, decoded, path, token } from './api.js';
import { byId, build, fill } from './dom.js';
import { sift } from './feed_panel.js';
import { clock, number } from './format.js';
import { policyWords } from './policy.js';
import { read } from './stream.js';

const KEPT = 100;
const COLOURS = { claimed: 'good', deposed: 'bad', released: 'quiet', failover: 'warn', shadow: 'quiet', policy: 'quiet', refused: 'bad' };
const REFUSED_MS = 30_000;
const AGAIN_MS = 1_000;
const SILENT_MS = 5_000;
const SETTLED_MS = 1_500;

/** Dispatches `happened` to views when something has changed. */
export const feed = new EventTarget();

/** @type {AbortController | null} of the stream that is open, or being opened */
let source = null;
/** @type {number | null} the position of the newest event seen */
let position = null;
const seen = new Set();
let timer = 0;
let settling = 0;

function open() {
  close();
  if (document.hidden) return;
  source = new AbortController();
  void follow(source);
}

/** @param {AbortController} own the stream to follow to its end */
async function follow(own) {
  const from = position === null ? `v1/events?last=${KEPT}` : `v1/events?from=${position + 1}`;
  let live = false;
  let why = null;
  try {
    why = await read(from, own.signal, () => {
      live = true;
      say('good', 'live', '');
      settling = setTimeout(() => byId('feed-log').setAttribute('aria-live', 'polite'), SETTLED_MS); // what is past is not read out
    }, take);
  } catch {
    // nobody answers, or the connection broke off
  }
  if (source === own) lost(live, why);
}

function close() {
  clearTimeout(timer);
  clearTimeout(settling);
  source?.abort();
  source = null;
  byId('feed-log').setAttribute('aria-live', 'off');
}

/**
 * @param {boolean} live whether the stream had begun
 * @param {string | null} why the node gives none; null where it does, or nobody answers
 */
function lost(live, why) {
  close();
  if (document.hidden) return;
  if (live) say('warn', 'connecting…', 'The event stream ended and is opened again; no event is lost.');
  else if (why === null) say('warn', 'connecting…', '');
  else say('warn', 'not live', `${why}. Topics, shadows and clients are still read every few seconds; the stream is tried again less often.`);
  timer = setTimeout(open, live ? AGAIN_MS : why === null ? SILENT_MS : REFUSED_MS);
}

/** @param {{id: string, data: string}} message */
function take(message) {
  position = Math.max(position ?? 0, Number(message.id));
  const event = decoded(message.data);
  if (seen.has(event.id)) return;
  seen.add(event.id);
  const list = byId('feed');
  list.prepend(entry(event));
  while (list.children.length > KEPT) {
    const oldest = /** @type {HTMLElement} */ (list.lastElementChild);
    seen.delete(oldest.dataset.event);
    oldest.remove();
  }
  sift();
  feed.dispatchEvent(new CustomEvent('happened', { detail: event }));
}

/** @param {any} event */
function entry(event) {
  const where = event.partition === null ? '' : ` · partition ${event.partition}`;
  const about = event.kind === 'shadow' ? 'shadows' : 'topics';
  return /** @type {Element} */ (build(['li', { 'data-event': event.id, 'data-topic': event.topic },
    ['p', {},
      ['time', { datetime: event.at, title: event.at, class: 'soft' }, clock(event.at)], ' ',
      ['span', { class: `tag ${COLOURS[event.kind]}` }, event.kind], ' ',
      event.topic ? ['a', { href: `#/${about}/${path(event.topic)}`, class: 'name' }, event.topic] : null, where],
    ['p', { class: 'soft' }, ...sentence(event)]]));
}

/** @param {any} event */
function sentence(event) {
  const facts = [event.name, event.generation ? `generation ${number(event.generation)}` : '', detail(event), event.node >= 0 ? `node ${event.node}` : ''];
  return facts.filter(Boolean).flatMap((each, index) => [index ? ' · ' : null, ['span', { class: 'name' }, each]]);
}

/**
 * What an event says besides; of a policy in words, as its `detail` is JSON for audits.
 *
 * @param {any} event
 */
function detail(event) {
  if (event.kind !== 'policy') return event.detail;
  const { by, deleted, policy } = event.details ?? {};
  const who = by ? `${by.charAt(0).toUpperCase()}${by.slice(1)}` : 'Somebody';
  if (deleted) return `${who} removed the policy`;
  return policy ? `${who} set the policy · ${policyWords(policy)}` : event.detail;
}

/**
 * @param {string} kind
 * @param {string} state
 * @param {string} why
 */
function say(kind, state, why) {
  const tag = byId('feed-state');
  tag.className = `tag ${kind}`;
  fill(tag, state);
  const reason = byId('feed-why');
  reason.hidden = !why;
  fill(reason, why);
}

/** Begin, and go on for ever. */
export function startFeed() {
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) close();
    else open();
  });
  connection.addEventListener('silent', () => {
    close();
    say('bad', 'not live', 'The node does not answer.');
  });
  connection.addEventListener('answered', open);
  token.changed.addEventListener('changed', open);
  open();
}

/**
 * What happens, as it happens: `EventSource` on `/v1/events`, with the newest of what happened before.
 *
 * A node has few places for readers, and a browser few connections to one node: a page that nobody looks at gives both
 * back and resumes where it was. A refusal is shown and tried again slowly; everything else on the page goes on without.
 */

import { Refusal, connection, decoded, path } from './api.js';
import { byId, build, fill } from './dom.js';
import { clock, number } from './format.js';

const KEPT = 100;
const KINDS = ['claimed', 'deposed', 'released', 'failover', 'shadow', 'policy'];
const COLOURS = { claimed: 'good', deposed: 'bad', released: 'quiet', failover: 'warn', shadow: 'quiet', policy: 'quiet' };
const REFUSED_MS = 30_000;
const SILENT_MS = 5_000;
const SETTLED_MS = 1_500;

/** Tells views that something has changed: an event `happened`. */
export const feed = new EventTarget();

/** @type {EventSource | null} */
let source = null;
/** @type {number | null} the position of the newest event seen */
let position = null;
const seen = new Set();
let timer = 0;
let settling = 0;

function open() {
  close();
  if (document.hidden) return;
  source = new EventSource(position === null ? `v1/events?last=${KEPT}` : `v1/events?from=${position + 1}`);
  source.addEventListener('open', () => {
    say('good', 'live', '');
    settling = setTimeout(() => byId('feed-log').setAttribute('aria-live', 'polite'), SETTLED_MS); // what is past is not read out
  });
  source.addEventListener('error', () => void lost());
  for (const kind of KINDS) source.addEventListener(kind, (event) => take(/** @type {MessageEvent} */ (event)));
}

function close() {
  clearTimeout(timer);
  clearTimeout(settling);
  source?.close();
  source = null;
  byId('feed-log').setAttribute('aria-live', 'off');
}

async function lost() {
  if (source?.readyState === EventSource.CONNECTING) {
    say('warn', 'connecting…', 'The stream has ended and is opened again; nothing is lost meanwhile.');
    return;
  }
  close();
  const why = await refusal();
  if (document.hidden || source) return;
  if (why === null) say('warn', 'connecting…', '');
  else say('warn', 'not live', `${why}. Topics, shadows and clients are read every few seconds all the same; this is tried again slowly.`);
  timer = setTimeout(open, why === null ? SILENT_MS : REFUSED_MS);
}

/** Why the node gives no stream, which an EventSource does not say; null where it does or nobody answers. */
async function refusal() {
  const asked = new AbortController();
  try {
    const answer = await fetch('v1/events', { signal: asked.signal, cache: 'no-store' });
    if (answer.ok) return null;
    return (await answer.json()).message ?? new Refusal(answer.status, answer.statusText).message;
  } catch {
    return null;
  } finally {
    asked.abort(); // it was only asked: the place is given back
  }
}

/** @param {MessageEvent} message */
function take(message) {
  position = Math.max(position ?? 0, Number(message.lastEventId));
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
  byId('feed-none').hidden = true;
  feed.dispatchEvent(new CustomEvent('happened', { detail: event }));
}

/** @param {any} event */
function entry(event) {
  const where = event.partition === null ? '' : ` · partition ${event.partition}`;
  const about = event.kind === 'shadow' ? 'shadows' : 'topics';
  return /** @type {Element} */ (build(['li', { 'data-event': event.id },
    ['p', {},
      ['time', { datetime: event.at, title: event.at, class: 'soft' }, clock(event.at)], ' ',
      ['span', { class: `tag ${COLOURS[event.kind]}` }, event.kind], ' ',
      ['a', { href: `#/${about}/${path(event.topic)}`, class: 'name' }, event.topic], where],
    ['p', { class: 'soft' }, ...sentence(event)]]));
}

/** @param {any} event */
function sentence(event) {
  const facts = [event.name, event.generation ? `generation ${number(event.generation)}` : '', event.detail, event.node >= 0 ? `node ${event.node}` : ''];
  return facts.filter(Boolean).flatMap((each, index) => [index ? ' · ' : null, ['span', { class: 'name' }, each]]);
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
  open();
}

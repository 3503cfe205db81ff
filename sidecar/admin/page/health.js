/** The strip at the top: whether the node serves, what it depends on, who else is alive; and the banner where it is silent. */

import { showResult } from './dialog.js';
import { connection, get } from './api.js';
import { byId, fill } from './dom.js';
import { clock, duration, number, since, tag } from './format.js';
import { Poll } from './poll.js';
import { retitle } from './title.js';

const EVERY_MS = 3_000;
const KINDS = { serving: 'good', starting: 'warn', draining: 'warn' };

/** The node that answered last; views ask whether it is the one that serves a topic. */
export const node = { id: -1, version: '' };

/** @param {any} status */
function show(status) {
  if (node.version && node.version !== status.version) {
    showResult(`The node now runs version ${status.version}; this page is of version ${node.version}: reload it.`);
  }
  node.id = status.node_id;
  node.version ||= status.version;
  retitle({ node: `Node ${status.node_id} · ${status.cluster} · Kafka sidecar`, ready: status.ready });
  fill(byId('place'), `node ${status.node_id} of cluster ${status.cluster}, for clients at ${status.advertise}`);
  const serving = status.state === 'serving' && !status.ready ? tag('bad', 'not ready') : tag(KINDS[status.state] ?? 'warn', status.state);
  fill(
    byId('health'),
    line('State', serving),
    ...status.checks.filter((each) => each.name !== 'node').map(check),
    line('Live nodes', ['strong', {}, number(status.nodes.length)], ['span', { class: 'soft' }, ` (${status.nodes.map((each) => each.id).join(', ')})`]),
    line('Brokers', ['strong', {}, number(status.brokers.length)]),
    line('Governed', ['strong', {}, number(status.governed_topics)]),
    line('Connections', ['strong', {}, number(status.client_connections)]),
    line('Sequence ids', ...ids(status.deduplication)),
    line('Up for', since(status.started)),
    line('Version', status.version),
  );
}

/** @param {{name: string, ok: boolean, required: boolean, detail: string}} found */
function check(found) {
  const kind = found.ok ? 'good' : found.required ? 'bad' : 'warn';
  return line(found.name, tag(kind, found.ok ? 'ok' : 'failing'), found.detail ? ['span', { class: 'detail' }, found.detail] : null);
}

/** @param {{ready: number, reading: number, lost: number, crowded: number, unprotected: number}} found */
function ids(found) {
  const parts = [['strong', {}, number(found.ready)], ' ready'];
  if (found.reading) parts.push(', ', tag('warn', `${number(found.reading)} reading`));
  if (found.lost) parts.push(', ', tag('bad', `${number(found.lost)} lost`));
  if (found.crowded) parts.push(', ', tag('warn', `${number(found.crowded)} nearly full of names`));
  if (found.unprotected) parts.push(', ', tag('warn', `${number(found.unprotected)} compacted too soon`));
  return parts;
}

/**
 * @param {string} name
 * @param {...any} parts
 */
function line(name, ...parts) {
  return ['div', {}, ['dt', {}, name], ['dd', {}, ...parts]];
}

function tellAge() {
  if (connection.last !== null) fill(byId('as-of'), `Last answer of the node: ${clock(connection.last)}`);
  const banner = byId('banner');
  if (banner.hidden === connection.silent) {
    banner.hidden = !connection.silent;
    fill(byId('banner-text'), connection.silent ? 'The node does not answer. The page tries again.' : '');
  }
  if (!connection.silent) return;
  const old = connection.last === null ? 'Nothing has been read yet.' : `What you see is ${duration((Date.now() - connection.last) / 1000)} old.`;
  fill(byId('banner-age'), old);
}

/** Begin, and go on for ever. */
export function startHealth() {
  const poll = new Poll(EVERY_MS, () => get('v1/status'), show, tellAge);
  for (const kind of ['silent', 'answered']) connection.addEventListener(kind, tellAge);
  byId('banner-retry').addEventListener('click', () => poll.now());
  setInterval(tellAge, 1000);
  poll.start();
}

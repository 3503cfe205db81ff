/** Who is connected to this node, and what went through the connections: one by one, or together. */

import { number, since, size } from './format.js';
import { Listed } from './paged.js';

const PAGE = 100;
/** One page of the node's at most: of more connections these are grouped, which the view says. */
const GROUPED = 1_000;
const TOGETHER = 'clients-together';

const FLOW = [
  { title: 'Requests', numeric: true, by: (each) => each.requests, parts: (each) => [number(each.requests)] },
  { title: 'In', numeric: true, by: (each) => each.bytes_in, parts: (each) => [size(each.bytes_in)] },
  { title: 'Out', numeric: true, by: (each) => each.bytes_out, parts: (each) => [size(each.bytes_out)] },
  { title: 'In flight', numeric: true, by: (each) => each.in_flight, parts: (each) => [number(each.in_flight)] },
];

const COLUMNS = [
  { title: 'Client', by: nameOf, parts: (each) => [['span', { class: 'name' }, nameOf(each)]] },
  { title: 'Mode', by: (each) => each.mode, parts: (each) => [each.mode ? each.mode.replaceAll('_', ' ') : '–'] },
  { title: 'Software', by: softwareOf, parts: (each) => [['span', { class: 'name' }, softwareOf(each) || '–']] },
  { title: 'Principal', by: (each) => each.principal, parts: (each) => [['span', { class: 'name' }, ...principalOf(each)]] },
  { title: 'Listener', by: (each) => each.listener, parts: (each) => [['span', { class: 'name' }, each.listener || '–']] },
  { title: 'Address', by: (each) => each.address, parts: (each) => [each.connections > 1 ? `${number(each.connections)} connections` : ['span', { class: 'name' }, each.address]] },
  { title: 'Connected for', by: (each) => -Date.parse(each.since), parts: (each) => [since(each.since)] },
  ...FLOW,
];

/** Its kind and its name, between which a line may end: `User:` and `ANONYMOUS`. */
function principalOf(each) {
  const [, kind, name] = /^([^:]*:)(.*)$/s.exec(each.principal) ?? [];
  return kind ? [kind, ['wbr', {}], name] : [each.principal || '–'];
}

export class Clients extends Listed {
  constructor() {
    super({
      title: 'Clients',
      about: 'Connections to this node; each node shows its own. The client itself reports its software (KIP-511).',
      every: 4_000,
      path: 'v1/clients',
      page: PAGE,
      key: (each) => `${each.address} ${each.since} ${each.connections ?? ''}`,
      columns: COLUMNS,
      none: 'No client is connected to this node.',
    });
    this.filters(['label', {}, ['input', { id: TOGETHER, type: 'checkbox', 'data-filter': 'together' }], ' together by name, software and principal']);
  }

  get #isTogether() {
    return super.wanted().together === 'true';
  }

  wanted() {
    return {}; // the node knows nothing of groups
  }

  /** How many are asked for at a time. */
  get size() {
    return this.#isTogether ? GROUPED : PAGE;
  }

  /** @param {{items: any[], next_page_token: string | null}} found */
  show(found) {
    const more = this.#isTogether && found.next_page_token !== null;
    super.show(this.#isTogether ? { ...found, items: together(found.items) } : found);
    this.note(more ? `These are ${number(GROUPED)} connections; the others are on the next page.` : '');
  }
}

/** @param {any} client */
function nameOf(client) {
  return client.name || client.client_id || '(no name)';
}

/** @param {any} client */
function softwareOf(client) {
  return [client.software_name, client.software_version].filter(Boolean).join(' ');
}

/**
 * One for each name, mode, software, principal and listener, in the order of their oldest connections.
 *
 * @param {any[]} clients
 */
function together(clients) {
  /** @type {Map<string, any>} */
  const found = new Map();
  for (const each of clients) {
    const key = JSON.stringify([nameOf(each), each.mode, softwareOf(each), each.principal, each.listener]);
    const group = found.get(key);
    if (!group) found.set(key, { ...each, connections: 1 });
    else {
      group.connections += 1;
      if (each.since < group.since) group.since = each.since;
      for (const field of ['requests', 'bytes_in', 'bytes_out', 'in_flight']) group[field] += each[field];
    }
  }
  return [...found.values()];
}

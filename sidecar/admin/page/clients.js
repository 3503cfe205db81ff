/** Who is connected to this node, and what went through the connection. */

import { number, since, size } from './format.js';
import { Listed } from './paged.js';

const COLUMNS = [
  { title: 'Client', by: (each) => each.name || each.client_id, parts: (each) => [['span', { class: 'name' }, each.name || each.client_id || '(no name)']] },
  { title: 'Mode', by: (each) => each.mode, parts: (each) => [each.mode ? each.mode.replaceAll('_', ' ') : '–'] },
  { title: 'Software', by: (each) => each.software_name, parts: (each) => [['span', { class: 'name' }, [each.software_name, each.software_version].filter(Boolean).join(' ') || '–']] },
  { title: 'Address', by: (each) => each.address, parts: (each) => [['span', { class: 'name' }, each.address]] },
  { title: 'Connected for', by: (each) => -Date.parse(each.since), parts: (each) => [since(each.since)] },
  { title: 'Requests', numeric: true, by: (each) => each.requests, parts: (each) => [number(each.requests)] },
  { title: 'In', numeric: true, by: (each) => each.bytes_in, parts: (each) => [size(each.bytes_in)] },
  { title: 'Out', numeric: true, by: (each) => each.bytes_out, parts: (each) => [size(each.bytes_out)] },
  { title: 'In flight', numeric: true, by: (each) => each.in_flight, parts: (each) => [number(each.in_flight)] },
];

export class Clients extends Listed {
  constructor() {
    super({
      title: 'Clients',
      about: 'Connections to this node; each node shows its own.',
      every: 4_000,
      path: 'v1/clients',
      page: 100,
      key: (each) => `${each.address} ${each.since}`,
      columns: COLUMNS,
      none: 'No client is connected to this node.',
    });
  }
}

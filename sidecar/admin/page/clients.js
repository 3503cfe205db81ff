/** Who is connected to this node, and what went through the connection. */

import { number, since, size } from './format.js';
import { Listed } from './paged.js';

const COLUMNS = [
  { title: 'Client', parts: (each) => [['span', { class: 'name' }, each.name || each.client_id || '(no name)']] },
  { title: 'Mode', parts: (each) => [each.mode ? each.mode.replaceAll('_', ' ') : '–'] },
  { title: 'Software', parts: (each) => [['span', { class: 'name' }, [each.software_name, each.software_version].filter(Boolean).join(' ') || '–']] },
  { title: 'Address', parts: (each) => [['span', { class: 'name' }, each.address]] },
  { title: 'Connected for', parts: (each) => [since(each.since)] },
  { title: 'Requests', numeric: true, parts: (each) => [number(each.requests)] },
  { title: 'In', numeric: true, parts: (each) => [size(each.bytes_in)] },
  { title: 'Out', numeric: true, parts: (each) => [size(each.bytes_out)] },
  { title: 'In flight', numeric: true, parts: (each) => [number(each.in_flight)] },
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

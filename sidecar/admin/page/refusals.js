/** What this node refused its clients lately: whom, what, why and how often. */

import { path } from './api.js';
import { number, since, tag } from './format.js';
import { Listed } from './paged.js';

const FILTER = 'refusal-topic';

/** The columns of one topic's. */
export const REFUSED = [
  { title: 'Client', by: (each) => each.client_id, parts: (each) => [['span', { class: 'name' }, each.client_id || '(no name)'], ' ', ['span', { class: 'soft' }, each.address]] },
  { title: 'Error', by: (each) => each.error, parts: (each) => [tag('bad', `${each.error_code} ${each.error}`)] },
  { title: 'Reason', parts: (each) => [['span', { class: 'name' }, each.reason || '–']] },
  { title: 'Times', numeric: true, by: (each) => each.count, parts: (each) => [number(each.count)] },
  { title: 'First', by: (each) => each.first, parts: (each) => [since(each.first), ' ago'] },
  { title: 'Last', by: (each) => each.last, parts: (each) => [since(each.last), ' ago'] },
];

const COLUMNS = [
  REFUSED[0],
  { title: 'Topic', by: (each) => each.topic, parts: (each) => [each.topic ? ['a', { href: `#/topics/${path(each.topic)}`, class: 'name' }, each.topic] : '–'] },
  ...REFUSED.slice(1),
];

/** @param {any} each */
export function refusalKey(each) {
  return `${each.client_id} ${each.address} ${each.topic} ${each.error_code}`;
}

export class Refusals extends Listed {
  constructor() {
    super({
      title: 'Refusals',
      about: 'Requests that this node refused lately, the newest first. Each node has its own list, in memory. Errors after which a client tries again by itself are not listed.',
      every: 5_000,
      path: 'v1/refusals',
      page: 100,
      key: refusalKey,
      columns: COLUMNS,
    });
    this.filters(
      ['label', { for: FILTER, class: 'unseen' }, 'Only of the topic with this name'],
      ['input', { id: FILTER, type: 'search', 'data-filter': 'topic', placeholder: 'Name of a topic', autocomplete: 'off', spellcheck: 'false' }],
    );
  }

  whyNone() {
    const { topic } = this.wanted();
    return topic ? `This node has refused no request for ${topic} lately.` : 'This node has refused no request lately.';
  }
}

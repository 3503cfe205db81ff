/** All topics, page by page: the node filters and cuts, so that thousands of them cost no more than one screen. */

import { path } from './api.js';
import { build } from './dom.js';
import { number, since, tag } from './format.js';
import { node } from './health.js';
import { Listed } from './paged.js';
import { askToCreateTopic, askToSetPolicy } from './topic_acts.js';
import { button, ownerless } from './topic_parts.js';

const PAGE = 50;
const NAME = 'topic-filter';
const GOVERNED = 'topic-governed';

export class Topics extends Listed {
  constructor() {
    super({ title: 'Topics', every: 4_000, path: 'v1/topics', page: PAGE, key: (topic) => topic.topic, columns: COLUMNS });
    this.filters(
      ['label', { for: NAME, class: 'unseen' }, 'Filter by name'],
      ['input', { id: NAME, type: 'search', 'data-filter': 'contains', placeholder: 'Filter by name', autocomplete: 'off', spellcheck: 'false' }],
      ['label', {}, ['input', { id: GOVERNED, type: 'checkbox', 'data-filter': 'governed', checked: true }], ' governed only'],
    );
    this.buttons.append(build(button('create', 'Create topic…')), build(button('policy', 'Set policy…')));
    this.buttons.addEventListener('click', (event) => {
      const act = event.target instanceof HTMLElement && event.target.dataset.act;
      if (act === 'create') askToCreateTopic(() => this.poll.now());
      else if (act === 'policy') askToSetPolicy('', undefined, () => this.poll.now());
    });
  }

  whyNone() {
    const { contains, governed } = this.wanted();
    const all = governed === 'false';
    if (contains) return `No ${all ? '' : 'governed '}topic has “${contains}” in its name.`;
    return !all ? 'No topic is governed yet: sidecar topic set TOPIC --access exclusive' : 'There are no topics.';
  }
}

/** @param {any} topic */
function owner(topic) {
  if (topic.owners) return [['span', {}, `${number(Object.keys(topic.owners).length)} of ${number(topic.partitions)} partitions owned`]];
  if (!topic.owner) return [['span', { class: 'soft' }, topic.policy && topic.partitions ? ownerless(topic.policy) : '–']];
  return [['span', { class: 'name' }, topic.owner.name], ' ', ['span', { class: 'soft' }, topic.owner.session]];
}

/**
 * Who waits is known where the topic is served.
 *
 * @param {any} topic
 */
function waiting(topic) {
  if (topic.policy && topic.serving_node !== null && topic.serving_node !== node.id) return [['span', { class: 'soft' }, `node ${topic.serving_node} knows`]];
  return [topic.waiting.length ? tag('warn', number(topic.waiting.length)) : '–'];
}

/** @param {any} topic */
function access(topic) {
  if (!topic.policy) return [['span', { class: 'soft' }, 'not governed']];
  const parts = [(topic.policy.access_mode ?? 'not said').replaceAll('_', ' ')];
  if (topic.policy.scope === 'partition') parts.push(' ', tag('quiet', 'by partition'));
  if (topic.policy.deduplication) parts.push(' ', tag(topic.deduplication_state === 'lost' ? 'bad' : 'quiet', 'deduplication'));
  return parts;
}

export const COLUMNS = [
  {
    title: 'Topic',
    by: (topic) => topic.topic,
    parts: (topic) => [['a', { href: `#/topics/${path(topic.topic)}`, class: 'name' }, topic.topic], ...(topic.topic.endsWith('*') ? [' ', tag('quiet', 'prefix')] : [])],
  },
  { title: 'Access', by: (topic) => topic.policy?.access_mode, parts: access },
  { title: 'Owner', by: (topic) => topic.owner?.name, parts: owner },
  { title: 'Generation', numeric: true, by: (topic) => topic.generation || null, parts: (topic) => [topic.generation ? number(topic.generation) : '–'] },
  { title: 'Since', by: (topic) => topic.owner?.since, parts: (topic) => [since(topic.owner?.since)] },
  { title: 'Waiting', numeric: true, by: (topic) => topic.waiting.length || null, parts: waiting },
  { title: 'Served by', by: (topic) => topic.serving_node, parts: (topic) => [topic.serving_node === null ? '–' : `node ${topic.serving_node}`] },
];

/** All topics, page by page: the node filters and cuts, so that thousands of them cost no more than one screen. */

import { get, path } from './api.js';
import { build, byId, fill } from './dom.js';
import { number, since, tag } from './format.js';
import { node } from './health.js';
import { table } from './table.js';
import { View, emptiness } from './view.js';

const PAGE = 50;
const TYPING_MS = 250;
const NAME = 'topic-filter';

export class Topics extends View {
  constructor() {
    super({ title: 'Topics', every: 4_000 });
    /** @type {string[]} the tokens of the pages in front of the next one; the first page has an empty one */
    this.tokens = [''];
    /** @type {string | null} */
    this.next = null;
    this.table = table('Topics and prefixes', (topic) => topic.topic, COLUMNS);
    this.none = /** @type {HTMLElement} */ (build(['p', { class: 'soft' }]));
    this.pager = /** @type {HTMLElement} */ (build(['nav', { class: 'pager', 'aria-label': 'Pages of topics' },
      ['button', { type: 'button', 'data-go': 'back' }, 'Previous'], ['span', { role: 'status' }], ['button', { type: 'button', 'data-go': 'on' }, 'Next']]));
    this.buttons.append(build(['form', { role: 'search', class: 'filter' },
      ['label', { for: NAME, class: 'unseen' }, 'Filter by name'],
      ['input', { id: NAME, type: 'search', placeholder: 'Filter by name', autocomplete: 'off', spellcheck: 'false' }],
      ['label', {}, ['input', { id: 'topic-governed', type: 'checkbox', checked: true }], ' governed only']]));
    this.content.append(this.table.element, this.none, this.pager);
    this.#listen();
  }

  #listen() {
    let typing = 0;
    this.buttons.addEventListener('submit', (event) => event.preventDefault());
    this.buttons.addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.#turn(['']), TYPING_MS);
    });
    this.pager.addEventListener('click', (event) => {
      const go = event.target instanceof HTMLElement && event.target.dataset.go;
      if (go === 'back' && this.tokens.length > 1) this.#turn(this.tokens.slice(0, -1));
      if (go === 'on' && this.next !== null) this.#turn([...this.tokens, this.next]);
    });
  }

  /** @param {string[]} tokens */
  #turn(tokens) {
    this.tokens = tokens;
    this.poll.renew();
  }

  async load() {
    const wanted = new URLSearchParams({ page_size: String(PAGE), governed: String(this.#governed()) });
    const token = this.tokens[this.tokens.length - 1];
    if (token) wanted.set('page_token', token);
    if (this.#text()) wanted.set('contains', this.#text());
    return get(`v1/topics?${wanted}`);
  }

  /** @param {{items: any[], next_page_token: string | null}} found */
  show(found) {
    this.next = found.next_page_token;
    if (!found.items.length && this.tokens.length > 1) return this.#turn(['']); // what was on this page is gone
    this.table.show(found.items);
    this.table.element.hidden = !found.items.length;
    emptiness(this.none, found.items.length ? '' : this.#whyNone());
    const page = this.tokens.length;
    this.pager.hidden = page === 1 && this.next === null;
    fill(this.pager.children[1], `Page ${page}`);
    /** @type {HTMLButtonElement} */ (this.pager.children[0]).disabled = page === 1;
    /** @type {HTMLButtonElement} */ (this.pager.children[2]).disabled = this.next === null;
  }

  #whyNone() {
    if (this.#text()) return `No ${this.#governed() ? 'governed ' : ''}topic has “${this.#text()}” in its name.`;
    return this.#governed() ? 'No topic is governed yet: sidecar topic set TOPIC --access exclusive' : 'There are no topics.';
  }

  #text() {
    return /** @type {HTMLInputElement} */ (byId(NAME)).value.trim();
  }

  #governed() {
    return /** @type {HTMLInputElement} */ (byId('topic-governed')).checked;
  }
}

/** @param {any} topic */
function owner(topic) {
  if (topic.owners) return [['span', {}, `${number(Object.keys(topic.owners).length)} of ${number(topic.partitions)} partitions owned`]];
  if (!topic.owner) return [['span', { class: 'soft' }, topic.policy ? 'nobody' : '–']];
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

const COLUMNS = [
  {
    title: 'Topic',
    parts: (topic) => [['a', { href: `#/topics/${path(topic.topic)}`, class: 'name' }, topic.topic], ...(topic.topic.endsWith('*') ? [' ', tag('quiet', 'prefix')] : [])],
  },
  { title: 'Access', parts: access },
  { title: 'Owner', parts: owner },
  { title: 'Generation', numeric: true, parts: (topic) => [topic.generation ? number(topic.generation) : '–'] },
  { title: 'Since', parts: (topic) => [since(topic.owner?.since)] },
  { title: 'Waiting', numeric: true, parts: waiting },
  { title: 'Served by', parts: (topic) => [topic.serving_node === null ? '–' : `node ${topic.serving_node}`] },
];

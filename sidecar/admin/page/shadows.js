/** All shadows with their lag. Numbers cost the node a look at Kafka: only those on the screen are asked for, one by one. */

import { keep } from './address.js';
import { Refusal, get, path } from './api.js';
import { build, byId } from './dom.js';
import { bar, number, since, size, tag } from './format.js';
import { Pager } from './paged.js';
import { askToCreateShadow } from './shadow_acts.js';
import { table } from './table.js';
import { View } from './view.js';

const PAGE = 20;
const STATES = { open: 'good', making: 'warn', closed: 'bad' };
const FILTER = 'shadow-filter';

export class Shadows extends View {
  constructor() {
    super({ title: 'Shadows', about: 'Read-only names for the logs of topics. Readers and bytes are those of this node, groups and lag those of the cluster.', every: 8_000 });
    /** @type {any[]} */
    this.items = [];
    /** @type {Map<string, any>} */
    this.stats = new Map();
    this.table = table('Shadows', (shadow) => shadow.name, COLUMNS, (sort) => keep('shadows', { sort }));
    this.pager = new Pager('shadows', () => this.#turn());
    this.buttons.append(
      build(['label', { for: FILTER, class: 'unseen' }, 'Filter by name or source']),
      build(['input', { id: FILTER, type: 'search', placeholder: 'Filter by name or source', autocomplete: 'off', spellcheck: 'false' }]),
      build(['button', { type: 'button', 'data-act': 'create' }, 'Create shadow…']),
    );
    this.content.append(...this.table.parts, this.pager.element);
    this.buttons.addEventListener('input', () => {
      keep('shadows', { contains: /** @type {HTMLInputElement} */ (byId(FILTER)).value.trim() });
      this.pager.restart();
      this.#turn();
    });
    this.element.addEventListener('click', (event) => {
      const pressed = event.target instanceof HTMLElement && event.target.dataset.act;
      if (pressed === 'create') askToCreateShadow('', () => this.poll.now());
    });
  }

  /**
   * @param {string} name
   * @param {URLSearchParams} query
   */
  open(name, query) {
    const field = /** @type {HTMLInputElement} */ (byId(FILTER));
    const wanted = query.get('contains') ?? '';
    if (field.value.trim() !== wanted) {
      field.value = wanted;
      this.pager.restart();
    }
    this.table.sort(query.get('sort') ?? '');
    super.open(name, query);
  }

  #turn() {
    this.#draw();
    this.poll.renew();
  }

  async load() {
    this.items = await every();
    const stats = new Map();
    for (const shadow of this.#page(this.#matching())) {
      stats.set(shadow.name, await statsOf(shadow.name));
    }
    return stats;
  }

  /** @param {Map<string, any>} stats */
  show(stats) {
    this.stats = stats;
    this.#draw();
  }

  #matching() {
    const text = /** @type {HTMLInputElement} */ (byId(FILTER)).value.trim().toLowerCase();
    return this.items.filter((each) => each.name.toLowerCase().includes(text) || each.source.toLowerCase().includes(text));
  }

  /** @param {any[]} found */
  #page(found) {
    const start = Number(this.pager.token);
    return found.slice(start, start + PAGE);
  }

  #draw() {
    const found = this.#matching();
    const items = this.#page(found);
    const end = Number(this.pager.token) + PAGE;
    if (!this.pager.shows(items.length, end < found.length ? String(end) : null, ` of ${Math.ceil(found.length / PAGE)}`)) return;
    const largest = Math.max(0, ...[...this.stats.values()].map((each) => each?.total_lag ?? 0));
    this.table.show(
      items.map((each) => ({ ...each, stats: this.stats.get(each.name), largest })),
      this.items.length ? 'No shadow has this text in its name or source.' : 'There are no shadows.',
    );
  }
}

/** @returns {Promise<any[]>} all of them, page by page: they are filtered here */
async function every() {
  const items = [];
  for (let token = ''; token !== null; ) {
    const page = await get(`v1/shadows?page_size=1000${token && `&page_token=${path(token)}`}`);
    items.push(...page.items);
    token = page.next_page_token;
  }
  return items;
}

/**
 * @param {string} name
 * @returns {Promise<any>} null where it has none: it is gone, or closed
 */
async function statsOf(name) {
  try {
    return (await get(`v1/shadows/${path(name)}`)).stats;
  } catch (error) {
    if (error instanceof Refusal) return null;
    throw error;
  }
}

/** @param {any} shadow */
export function stateOf(shadow) {
  const parts = [tag(STATES[shadow.state] ?? 'quiet', shadow.state)];
  for (const why of [shadow.reason, shadow.warning]) if (why) parts.push(['span', { class: 'detail' }, why]);
  return parts;
}

const COLUMNS = [
  { title: 'Shadow', by: (shadow) => shadow.name, parts: (each) => [['a', { href: `#/shadows/${path(each.name)}`, class: 'name' }, each.name]] },
  { title: 'Source', by: (shadow) => shadow.source, parts: (each) => [['a', { href: `#/topics/${path(each.source)}`, class: 'name' }, each.source]] },
  { title: 'State', by: (shadow) => shadow.state, parts: stateOf },
  { title: 'Readers', numeric: true, by: (shadow) => shadow.stats?.readers, parts: (each) => [number(each.stats?.readers)] },
  { title: 'Read', numeric: true, by: (shadow) => shadow.stats?.bytes, parts: (each) => [size(each.stats?.bytes)] },
  { title: 'Last read', by: (shadow) => shadow.stats?.last_read, parts: (each) => [since(each.stats?.last_read)] },
  { title: 'Groups', numeric: true, by: (shadow) => shadow.stats?.groups, parts: (each) => [number(each.stats?.groups)] },
  { title: 'Lag', by: (shadow) => shadow.stats?.total_lag, parts: (each) => [each.stats ? bar(each.stats.total_lag, each.largest) : '–'] },
];

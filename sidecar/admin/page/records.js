/**
 * A look at the last records of a topic, when somebody asks for one: the node cuts them and says what is text. They are
 * shown as text nodes, whatever is in them.
 */

import { get, path } from './api.js';
import { explained } from './dialog.js';
import { build, byId, fill } from './dom.js';
import { clock, number, size, tag } from './format.js';
import { table } from './table.js';

/** What is longer may have to be scrolled, and the keyboard gets there. */
const SHORT = 120;
const LINES = 5;

export class Records {
  name = '';

  constructor() {
    this.table = table('Last records', (each) => `${each.partition} ${each.offset}`, COLUMNS);
    this.problem = /** @type {HTMLElement} */ (build(['p', { class: 'problem', role: 'alert' }]));
    const form = /** @type {HTMLElement} */ (build(['form', { class: 'filter' },
      ['label', { for: 'records-partition' }, 'Partition'],
      ['input', { id: 'records-partition', inputmode: 'numeric', placeholder: 'all', autocomplete: 'off', size: '6' }],
      ['label', { for: 'records-limit' }, 'Number'],
      ['select', { id: 'records-limit' }, ...['20', '50', '100'].map((each) => ['option', { value: each }, each])],
      ['button', { type: 'submit' }, 'Read the last records']]));
    this.element = /** @type {HTMLElement} */ (build(['section', { class: 'block' }, ['h3', {}, 'Last records'],
      ['p', { class: 'soft' }, 'The node reads them on request. This needs the token to operate, and is recorded in the audit log. Long records are cut. Records of aborted transactions are shown, too.']]));
    this.element.append(form, this.problem, ...this.table.parts);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#read();
    });
  }

  /** @param {string} name */
  open(name) {
    if (name === this.name) return;
    this.name = name;
    fill(this.problem);
    this.table.show([], '');
  }

  async #read() {
    const name = this.name;
    const query = new URLSearchParams({ limit: /** @type {HTMLSelectElement} */ (byId('records-limit')).value });
    const partition = /** @type {HTMLInputElement} */ (byId('records-partition')).value.trim();
    if (partition) query.set('partition', partition);
    try {
      const found = await get(`v1/topics/${path(name)}/records?${query}`);
      if (name !== this.name) return;
      fill(this.problem);
      this.table.show(found.items, 'There is no record at the end of the log.');
    } catch (error) {
      if (name !== this.name) return;
      this.table.show([], '');
      fill(this.problem, explained(/** @type {Error} */ (error)));
    }
  }
}

/**
 * Some bytes: text as it is, other bytes as digits, and how many are left out.
 *
 * @param {{text?: string, hex?: string, size: number, cut: boolean} | null} found
 * @returns {any[]} parts
 */
function shown(found) {
  if (found === null) return [['span', { class: 'soft' }, 'null']];
  if (!found.size) return [['span', { class: 'soft' }, 'empty']];
  const text = found.text ?? (found.hex ?? '').replace(/(..)(?=.)/g, '$1 ');
  const scrolls = text.length > SHORT || text.split('\n').length > LINES;
  const parts = [['code', { class: 'data', tabindex: scrolls ? '0' : null }, text]];
  if (found.text === undefined) parts.unshift(tag('quiet', 'hex'), ' ');
  if (found.cut) parts.push(['span', { class: 'detail' }, `the beginning of ${size(found.size)}`]);
  return parts;
}

/** @param {any} record */
function producer(record) {
  const parts = [['span', { class: 'name' }, record.producer_name ?? '–']];
  if (record.generation !== null) parts.push(['span', { class: 'detail' }, `generation ${number(record.generation)}`]);
  if (record.producer_id !== null) parts.push(['span', { class: 'detail' }, `producer id ${record.producer_id}, epoch ${record.producer_epoch}`]);
  return parts;
}

const COLUMNS = [
  { title: 'Offset', parts: (each) => [['span', { class: 'at' }, ['span', { class: 'soft' }, `${each.partition} · `], number(each.offset)]] },
  { title: 'Time', parts: (each) => [each.timestamp ? ['time', { datetime: each.timestamp, title: each.timestamp }, clock(each.timestamp)] : '–'] },
  { title: 'Key', parts: (each) => shown(each.key) },
  { title: 'Value', parts: (each) => shown(each.value) },
  {
    title: 'Headers',
    parts: (each) => [each.headers.length ? ['ul', {}, ...each.headers.map(({ name, value }) => ['li', {}, ['span', { class: 'name soft' }, name], ' ', ...shown(value)])] : '–'],
  },
  { title: 'Sequence id', numeric: true, parts: (each) => [number(each.sequence_id)] },
  { title: 'Producer', parts: producer },
];

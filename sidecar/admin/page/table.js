/**
 * A table whose rows stay the same nodes from refresh to refresh, sorted by the column that somebody chose. Where the page
 * is narrow the style sheet makes a card of each row; the roles keep it a table for those who listen to it.
 */

import { build, fill, keyed } from './dom.js';

const COLLATOR = new Intl.Collator('en', { numeric: true, sensitivity: 'base' });

/**
 * `by`: what its cells are sorted by, where they can be.
 *
 * @template T
 * @typedef {{title: string, parts: (item: T) => any[], numeric?: boolean, by?: (item: T) => any}} Column
 */

/**
 * @template T
 * @param {string} caption what it lists
 * @param {(item: T) => string} key
 * @param {Column<T>[]} columns the first names the row
 * @param {(sort: string) => void} [sorted] somebody chose another order
 * @returns {{parts: HTMLElement[], show: (items: T[], why: string) => void, sort: (sort: string) => void}} `show` says
 *   `why` where there are no items; `sort`: the title of a column, `-` before it for the largest first, '' as it comes
 */
export function table(caption, key, columns, sorted = () => {}) {
  const head = /** @type {HTMLElement} */ (build(['tr', { role: 'row' }]));
  const body = /** @type {HTMLElement} */ (build(['tbody', { role: 'rowgroup' }]));
  const element = /** @type {HTMLElement} */ (build(['table', { role: 'table' }, ['caption', { class: 'unseen' }, caption], ['thead', { role: 'rowgroup' }]]));
  /** @type {Element} */ (element.lastElementChild).append(head);
  element.append(body);
  const none = /** @type {HTMLElement} */ (build(['p', { class: 'soft' }]));
  const order = new Order(columns);
  const choose = /** @type {HTMLElement} */ (build(['label', { class: 'sort' }, 'Sort by ', order.control()]));
  /** @type {T[]} */
  let shown = [];

  function draw() {
    fill(head, ...columns.map((each) => order.header(each)));
    const items = order.of(shown);
    keyed(body, items, key, make, (row, item) => columns.forEach((each, index) => fill(row.children[index], ...each.parts(item))));
  }

  /** @param {string} chosen */
  function sort(chosen) {
    order.by = chosen;
    /** @type {HTMLSelectElement} */ (choose.querySelector('select')).value = order.by;
    draw();
  }

  /** @returns {Element} */
  function make() {
    const cells = columns.map((each, index) => (index === 0
      ? ['th', { scope: 'row', role: 'rowheader' }]
      : ['td', { role: 'cell', 'data-label': each.title, class: kind(each) }]));
    return /** @type {Element} */ (build(['tr', { role: 'row' }, ...cells]));
  }

  head.addEventListener('click', (event) => {
    const pressed = event.target instanceof Element && event.target.closest('button');
    if (!pressed) return;
    sort(order.next(pressed.dataset.by ?? ''));
    sorted(order.by);
  });
  choose.addEventListener('change', (event) => {
    sort(/** @type {HTMLSelectElement} */ (event.target).value);
    sorted(order.by);
  });

  return {
    parts: [choose, element, none],
    sort,
    show: (items, why) => {
      shown = items;
      draw();
      element.hidden = !items.length;
      choose.hidden = items.length < 2 || !order.possible.length;
      none.hidden = items.length > 0 || !why;
      fill(none, why);
    },
  };
}

/** What a table is sorted by. */
class Order {
  #by = '';

  /** @param {Column<any>[]} columns */
  constructor(columns) {
    this.possible = columns.filter((each) => each.by);
  }

  get by() {
    return this.#by;
  }

  /** What no column is called leaves the rows as they come. */
  set by(sort) {
    this.#by = this.possible.some((each) => each.title === sort.replace(/^-/, '')) ? sort : '';
  }

  /**
   * A press: upwards, downwards, as it comes.
   *
   * @param {string} title
   */
  next(title) {
    return this.#by === title ? `-${title}` : this.#by === `-${title}` ? '' : title;
  }

  /** For narrow screens, where the heads of columns are not shown. */
  control() {
    const options = this.possible.flatMap(({ title }) => [[title, title], [`-${title}`, `${title}, largest first`]]);
    return ['select', {}, ...[['', 'as it comes'], ...options].map(([value, text]) => ['option', { value }, text])];
  }

  /** @param {Column<any>} column */
  header(column) {
    const { title } = column;
    const direction = this.#by === title ? 'ascending' : this.#by === `-${title}` ? 'descending' : null;
    const arrow = direction ? ['span', { 'aria-hidden': 'true' }, direction === 'ascending' ? ' ▲' : ' ▼'] : null;
    const content = column.by ? [['button', { type: 'button', class: 'head', 'data-by': title }, title, arrow]] : [title];
    return ['th', { scope: 'col', role: 'columnheader', class: kind(column), 'aria-sort': direction }, ...content];
  }

  /**
   * @template T
   * @param {T[]} items
   */
  of(items) {
    const column = this.possible.find((each) => each.title === this.#by.replace(/^-/, ''));
    if (!column?.by) return items;
    const { by } = column;
    const sign = this.#by.startsWith('-') ? -1 : 1;
    return items.map((item) => ({ item, value: by(item) })).sort((one, other) => compared(one.value, other.value, sign)).map(({ item }) => item);
  }
}

/**
 * What has no value comes last, whichever way it goes.
 *
 * @param {any} one
 * @param {any} other
 * @param {number} sign
 */
function compared(one, other, sign) {
  const [no, neither] = [one === null || one === undefined || one === '', other === null || other === undefined || other === ''];
  if (no || neither) return Number(no) - Number(neither);
  if (typeof one === 'string' || typeof other === 'string') return sign * COLLATOR.compare(String(one), String(other));
  return one < other ? -sign : one > other ? sign : 0;
}

/** @param {Column<any>} column */
function kind(column) {
  return column.numeric ? 'numeric' : null;
}

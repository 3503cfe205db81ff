/**
 * A table whose rows stay the same nodes from refresh to refresh. Where the page is narrow the style sheet makes a card of
 * each row; the roles keep it a table for those who listen to it.
 */

import { build, fill, keyed } from './dom.js';

/**
 * @template T
 * @typedef {{title: string, parts: (item: T) => any[], numeric?: boolean}} Column
 */

/**
 * @template T
 * @param {string} caption what it lists
 * @param {(item: T) => string} key
 * @param {Column<T>[]} columns the first names the row
 * @returns {{parts: HTMLElement[], show: (items: T[], why: string) => void}} `show` says `why` where there are no items
 */
export function table(caption, key, columns) {
  const head = ['tr', { role: 'row' }, ...columns.map((each) => ['th', { scope: 'col', role: 'columnheader', class: kind(each) }, each.title])];
  const body = /** @type {HTMLElement} */ (build(['tbody', { role: 'rowgroup' }]));
  const element = /** @type {HTMLElement} */ (build(['table', { role: 'table' }, ['caption', { class: 'unseen' }, caption], ['thead', { role: 'rowgroup' }, head]]));
  element.append(body);
  const none = /** @type {HTMLElement} */ (build(['p', { class: 'soft' }]));

  /** @returns {Element} */
  function make() {
    const cells = columns.map((each, index) => (index === 0
      ? ['th', { scope: 'row', role: 'rowheader' }]
      : ['td', { role: 'cell', 'data-label': each.title, class: kind(each) }]));
    return /** @type {Element} */ (build(['tr', { role: 'row' }, ...cells]));
  }

  return {
    parts: [element, none],
    show: (items, why) => {
      keyed(body, items, key, make, (row, item) => columns.forEach((each, index) => fill(row.children[index], ...each.parts(item))));
      element.hidden = !items.length;
      none.hidden = items.length > 0 || !why;
      fill(none, why);
    },
  };
}

/** @param {Column<any>} column */
function kind(column) {
  return column.numeric ? 'numeric' : null;
}

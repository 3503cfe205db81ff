/** A list of the node that is asked, which a node of an older version may not have: a page at a time, with a clear word. */

import { Refusal, get } from './api.js';
import { build, fill } from './dom.js';
import { table } from './table.js';
import { View, emptiness } from './view.js';

export class Listed extends View {
  /**
   * @param {{title: string, about: string, every: number, path: string, page?: number, key: (item: any) => string, columns: any[], none: string}} told
   *   `page`: how many at a time, where the node has pages of it
   */
  constructor(told) {
    super(told);
    this.told = told;
    /** @type {string[]} */
    this.tokens = [''];
    /** @type {string | null} */
    this.next = null;
    this.table = table(told.title, told.key, told.columns);
    this.none = /** @type {HTMLElement} */ (build(['p', { class: 'soft' }]));
    this.pager = /** @type {HTMLElement} */ (build(['nav', { class: 'pager', 'aria-label': `Pages of ${told.title.toLowerCase()}`, hidden: true },
      ['button', { type: 'button', 'data-go': 'back' }, 'Previous'], ['span', { role: 'status' }], ['button', { type: 'button', 'data-go': 'on' }, 'Next']]));
    this.content.append(this.table.element, this.none, this.pager);
    this.pager.addEventListener('click', (event) => {
      const go = event.target instanceof HTMLElement && event.target.dataset.go;
      if (go === 'back') this.tokens.pop();
      if (go === 'on' && this.next !== null) this.tokens.push(this.next);
      if (go) this.poll.renew();
    });
  }

  async load() {
    if (!this.told.page) return get(this.told.path);
    const wanted = new URLSearchParams({ page_size: String(this.told.page) });
    const token = this.tokens[this.tokens.length - 1];
    if (token) wanted.set('page_token', token);
    return get(`${this.told.path}?${wanted}`);
  }

  /** @param {{items: any[], next_page_token: string | null}} found */
  show(found) {
    this.next = found.next_page_token;
    if (!found.items.length && this.tokens.length > 1) { // what was on this page is gone
      this.tokens = [''];
      this.poll.renew();
      return;
    }
    this.table.show(found.items);
    this.table.element.hidden = !found.items.length;
    emptiness(this.none, found.items.length ? '' : this.told.none);
    const page = this.tokens.length;
    this.pager.hidden = page === 1 && this.next === null;
    fill(this.pager.children[1], `Page ${page}`);
    /** @type {HTMLButtonElement} */ (this.pager.children[0]).disabled = page === 1;
    /** @type {HTMLButtonElement} */ (this.pager.children[2]).disabled = this.next === null;
  }

  /** @param {Error} error */
  failed(error) {
    const missing = error instanceof Refusal && error.status === 404;
    super.failed(missing ? new Refusal(404, `This node does not tell its ${this.told.title.toLowerCase()}: it is of an older version.`) : error);
  }
}

/** Lists in pages: the buttons that turn them, and views that are one list of the node that is asked. */

import { Refusal, get } from './api.js';
import { build, fill } from './dom.js';
import { table } from './table.js';
import { View } from './view.js';

/** Where a list stands: the tokens of its pages up to the one that is shown, of which the first has an empty one. */
export class Pager {
  #tokens = [''];

  /** @type {string | null} */
  #next = null;

  /**
   * @param {string} what
   * @param {() => void} turn another page is to be shown
   */
  constructor(what, turn) {
    this.turn = turn;
    this.element = /** @type {HTMLElement} */ (build(['nav', { class: 'pager', 'aria-label': `Pages of ${what}`, hidden: true },
      ['button', { type: 'button', 'data-go': 'back' }, 'Previous'], ['span', { role: 'status' }], ['button', { type: 'button', 'data-go': 'on' }, 'Next']]));
    this.element.addEventListener('click', (event) => {
      const go = event.target instanceof HTMLElement && event.target.dataset.go;
      if (go === 'back' && this.#tokens.length > 1) this.#tokens.pop();
      else if (go === 'on' && this.#next !== null) this.#tokens.push(this.#next);
      else return;
      this.turn();
    });
  }

  /** The token of the page that is shown. */
  get token() {
    return this.#tokens[this.#tokens.length - 1];
  }

  /**
   * How the page is asked for.
   *
   * @param {number} size
   * @param {Record<string, string>} [more] of the query
   */
  query(size, more = {}) {
    return new URLSearchParams({ page_size: String(size), ...more, ...(this.token && { page_token: this.token }) });
  }

  /** The first page is the one that is shown next. */
  restart() {
    this.#tokens = [''];
  }

  /**
   * The buttons for a page that came. One that holds nothing, as all that was on it is gone, gives way to the first.
   *
   * @param {number} count what the page holds
   * @param {string | null} next the token of the page behind it
   * @param {string} [more] said behind the number of the page
   * @returns {boolean} whether this is the page to show
   */
  shows(count, next, more = '') {
    this.#next = next;
    const page = this.#tokens.length;
    if (!count && page > 1) {
      this.restart();
      this.turn();
      return false;
    }
    this.element.hidden = page === 1 && next === null;
    const [back, place, on] = /** @type {any} */ (this.element.children);
    back.disabled = page === 1;
    fill(place, `Page ${page}${more}`);
    on.disabled = next === null;
    return true;
  }
}

export class Listed extends View {
  /**
   * @param {{title: string, about?: string, every: number, path: string, page?: number, key: (item: any) => string, columns: any[], none?: string}} options
   *   `page`: how many at a time, where the node has pages of it; `none`: said where there is nothing
   */
  constructor(options) {
    super(options);
    this.options = options;
    this.table = table(options.title, options.key, options.columns);
    this.pager = new Pager(options.title.toLowerCase(), () => this.poll.renew());
    this.content.append(...this.table.parts, this.pager.element);
  }

  /** @returns {Record<string, string>} what is asked for besides the page */
  wanted() {
    return {};
  }

  /** Why there is nothing. */
  whyNone() {
    return this.options.none ?? '';
  }

  async load() {
    return get(this.options.page ? `${this.options.path}?${this.pager.query(this.options.page, this.wanted())}` : this.options.path);
  }

  /** @param {{items: any[], next_page_token: string | null}} found */
  show({ items, next_page_token: next }) {
    if (this.pager.shows(items.length, next)) this.table.show(items, this.whyNone());
  }

  /** @param {Error} error */
  failed(error) {
    const missing = error instanceof Refusal && error.status === 404;
    super.failed(missing ? new Refusal(404, `This node does not list its ${this.options.title.toLowerCase()}: it is of an older version.`) : error);
  }
}

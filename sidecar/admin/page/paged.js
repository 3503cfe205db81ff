/** Lists in pages: the buttons that turn them, and views that are one list of the node that is asked. */

import { keep } from './address.js';
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
   * @param {string} [more] said behind the number of the page, where there are several
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

const TYPING_MS = 250;

export class Listed extends View {
  /** @type {HTMLInputElement[]} each is named by the parameter of the node that it stands for */
  #fields = [];

  #sort = '';

  /**
   * @param {{title: string, about?: string, every: number, path: string, page?: number, key: (item: any) => string, columns: any[], none?: string}} options
   *   `page`: how many at a time, where the node has pages of it; `none`: said where there is nothing
   */
  constructor(options) {
    super(options);
    this.options = options;
    this.table = table(options.title, options.key, options.columns, (sort) => {
      this.#sort = sort;
      keep(this.section, { sort });
      this.poll.now();
    });
    this.pager = new Pager(options.title.toLowerCase(), () => this.poll.renew());
    this.noted = /** @type {HTMLElement} */ (build(['p', { class: 'soft', hidden: true }]));
    this.content.append(this.noted, ...this.table.parts, this.pager.element);
  }

  /** How many are asked for at a time, where the node has pages. */
  get size() {
    return this.options.page ?? 0;
  }

  /**
   * Something to know about what is listed.
   *
   * @param {string} text
   */
  note(text) {
    this.noted.hidden = !text;
    fill(this.noted, text);
  }

  /** Its name in the address. */
  get section() {
    return this.options.title.toLowerCase();
  }

  /**
   * Fields that narrow the list down: inputs with `data-filter`, the parameter of the node that each stands for.
   *
   * @param {...any} parts the fields and their labels
   */
  filters(...parts) {
    const form = /** @type {HTMLElement} */ (build(['form', { role: 'search', class: 'filter' }, ...parts]));
    this.#fields = [...form.querySelectorAll('input')];
    this.buttons.append(form);
    form.addEventListener('submit', (event) => event.preventDefault());
    let typing = 0;
    form.addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(() => {
        keep(this.section, Object.fromEntries(this.#fields.map((each) => [each.dataset.filter, said(each, true)])));
        this.pager.restart();
        this.poll.renew();
      }, TYPING_MS);
    });
  }

  /** @returns {Record<string, string>} what is asked for besides the page */
  wanted() {
    return this.#asked();
  }

  /** @returns {Record<string, string>} what the fields say */
  #asked() {
    return Object.fromEntries(this.#fields.map((each) => [each.dataset.filter, said(each)]).filter(([, value]) => value));
  }

  /**
   * @param {string} name
   * @param {URLSearchParams} query
   */
  open(name, query) {
    const before = JSON.stringify(this.#asked());
    for (const field of this.#fields) {
      const value = query.get(field.dataset.filter ?? '');
      if (field.type === 'checkbox') field.checked = value === null ? field.defaultChecked : value === 'true';
      else field.value = value ?? '';
    }
    this.#sort = query.get('sort') ?? '';
    this.table.sort(this.#sort);
    if (JSON.stringify(this.#asked()) !== before) {
      this.pager.restart();
      this.poll.stop(); // what is under way answers another question
    }
    super.open(name, query);
  }

  /** Why there is nothing. */
  whyNone() {
    return this.options.none ?? '';
  }

  async load() {
    return get(this.options.page ? `${this.options.path}?${this.pager.query(this.size, this.wanted())}` : this.options.path);
  }

  /** @param {{items: any[], next_page_token: string | null}} found */
  show({ items, next_page_token: next }) {
    if (this.pager.shows(items.length, next, this.#sort && ', sorted within the page')) this.table.show(items, this.whyNone());
  }

  /** @param {Error} error */
  failed(error) {
    const missing = error instanceof Refusal && error.status === 404;
    super.failed(missing ? new Refusal(404, `This node has an older version, which does not list ${this.options.title.toLowerCase()}.`) : error);
  }
}

/**
 * What a field says; `''` where it says nothing.
 *
 * @param {HTMLInputElement} field
 * @param {boolean} [only] what it says by itself is nothing
 */
function said(field, only = false) {
  if (field.type !== 'checkbox') return field.value.trim();
  return only && field.checked === field.defaultChecked ? '' : String(field.checked);
}

/**
 * What all views have in common: a section with a heading, a place for what went wrong, and one resource that is read
 * while the section is shown.
 */

import { listOf } from './address.js';
import { Refusal, Silence } from './api.js';
import { build, fill } from './dom.js';
import { Poll } from './poll.js';

export class View {
  /** @param {{title: string, about?: string, every: number}} options `every`: milliseconds between two readings */
  constructor(options) {
    this.element = /** @type {HTMLElement} */ (build(['section', { class: 'panel view' }]));
    this.heading = /** @type {HTMLElement} */ (build(['h2', { tabindex: '-1' }, options.title]));
    this.buttons = /** @type {HTMLElement} */ (build(['div', { class: 'buttons' }]));
    this.problem = /** @type {HTMLElement} */ (build(['p', { class: 'problem', role: 'alert' }]));
    this.content = /** @type {HTMLElement} */ (build(['div', { class: 'content', 'aria-busy': 'true' }]));
    const head = build(['header', {}]);
    /** @type {Element} */ (head).append(this.heading, this.buttons);
    this.element.append(head);
    if (options.about) this.element.append(build(['p', { class: 'soft' }, options.about]));
    this.element.append(this.problem, this.content);
    this.title = options.title;
    this.poll = new Poll(options.every, () => this.load(), (found) => this.#shown(found), (error) => this.failed(error));
  }

  /**
   * @param {string} _name what stands behind the view's own name in the address
   * @param {URLSearchParams} _query what the address asks of it
   */
  open(_name, _query) {
    this.poll.start();
  }

  close() {
    this.poll.stop();
  }

  /** @returns {Promise<any>} */
  async load() {
    return null;
  }

  /** @param {any} _found */
  show(_found) {}

  /** @param {Error} error */
  failed(error) {
    this.content.setAttribute('aria-busy', 'false');
    if (!(error instanceof Silence)) fill(this.problem, error.message);
  }

  /** @param {any} found */
  #shown(found) {
    this.content.setAttribute('aria-busy', 'false');
    fill(this.problem);
    this.show(found);
  }
}

/** A view of one thing, which has a name: nothing of the one that was shown before is left when another is opened. */
export class Named extends View {
  name = '';

  /** @param {{title: string, about?: string, section: string, every: number}} options `section`: of its list */
  constructor(options) {
    super(options);
    this.section = options.section;
    this.back = /** @type {HTMLElement} */ (build(['p', { class: 'back' }]));
    this.element.prepend(this.back);
  }

  /**
   * @param {string} name
   * @param {URLSearchParams} query
   */
  open(name, query) {
    fill(this.back, ['a', { href: listOf(this.section) }, `← ${this.section[0].toUpperCase()}${this.section.slice(1)}`]);
    if (name !== this.name) {
      this.name = name;
      this.forget();
      fill(this.heading, name);
      fill(this.buttons);
      fill(this.problem);
      this.content.hidden = true;
      this.poll.stop(); // what is under way answers for another name
    }
    super.open(name, query);
  }

  /** What was known belongs to another name. */
  forget() {}

  /** @param {any} _found */
  show(_found) {
    this.content.hidden = false;
  }

  /** @param {Error} error */
  failed(error) {
    super.failed(error);
    if (error instanceof Refusal && error.status === 404) {
      this.content.hidden = true;
      fill(this.buttons);
    }
  }
}

/**
 * Names and values in two columns.
 *
 * @param {[string, ...any[]][]} lines
 * @returns {any} a part
 */
export function facts(lines) {
  return ['dl', { class: 'facts' }, ...lines.map(([name, ...parts]) => ['div', {}, ['dt', {}, name], ['dd', {}, ...parts]])];
}

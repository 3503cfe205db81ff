/** One shadow: who may read it, how it is read, and the cursors of its groups with their lag. */

import { Refusal, get, path } from './api.js';
import { build, fill } from './dom.js';
import { bar, number, since, size, tag } from './format.js';
import { Pager } from './paged.js';
import { askToChangeShadow, askToDeleteShadow, askToResetCursor } from './shadow_acts.js';
import { stateOf } from './shadows.js';
import { table } from './table.js';
import { button } from './topic_parts.js';
import { Named, facts } from './view.js';

const PAGE = 100;

export class Shadow extends Named {
  constructor() {
    super({ title: 'Shadow', section: 'shadows', every: 5_000 });
    /** @type {any} */
    this.shadow = null;
    /** @type {any[]} */
    this.groups = [];
    this.facts = /** @type {HTMLElement} */ (build(['div', {}]));
    this.cursors = table('Cursors', (cursor) => cursor.group, CURSORS);
    this.pager = new Pager('cursors', () => this.poll.renew());
    this.content.append(this.facts, build(['h3', {}, 'Cursors']), ...this.cursors.parts, this.pager.element);
    this.element.addEventListener('click', (event) => {
      const { act, of } = event.target instanceof HTMLElement ? event.target.dataset : {};
      const done = () => this.poll.now();
      if (!this.shadow) return;
      if (act === 'delete') askToDeleteShadow(this.shadow.source, this.name, done);
      else if (act === 'change') askToChangeShadow(this.shadow, done);
      else if (act === 'reset') askToResetCursor(this.name, this.groups.find((each) => each.group === of) ?? { group: of }, done);
    });
  }

  forget() {
    this.shadow = null;
    this.groups = [];
    this.pager.restart();
  }

  async load() {
    const shadow = await get(`v1/shadows/${path(this.name)}`);
    try {
      return { shadow, cursors: await get(`v1/shadows/${path(this.name)}/cursors?${this.pager.query(PAGE)}`), why: '' };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return { shadow, cursors: { items: [], next_page_token: null }, why: error.message };
    }
  }

  /** @param {{shadow: any, cursors: any, why: string}} found */
  show({ shadow, cursors, why }) {
    super.show(shadow);
    this.shadow = shadow;
    this.groups = cursors.items;
    fill(this.buttons, button('change', 'Change…'), button('delete', 'Delete…', 'danger'));
    fill(this.facts, facts(aboutShadow(shadow)));
    if (!this.pager.shows(why ? 1 : cursors.items.length, cursors.next_page_token)) return;
    const largest = Math.max(0, ...cursors.items.map((each) => each.lag));
    this.cursors.show(cursors.items.map((each) => ({ ...each, largest })), why || 'No group has committed an offset yet.');
  }
}

/** @param {any} shadow */
function aboutShadow(shadow) {
  const { stats } = shadow;
  /** @type {[string, ...any[]][]} */
  const lines = [
    ['Source', ['a', { href: `#/topics/${path(shadow.source)}`, class: 'name' }, shadow.source]],
    ['State', ...stateOf(shadow)],
    ['May read', ['span', { class: 'name' }, shadow.allow.join(', ') || 'nobody']],
    ['Made', since(shadow.created), ' ago'],
    ['Readers here', number(stats.readers)],
    ['Read here', size(stats.bytes)],
    ['Groups', number(stats.groups)],
    ['Lag of all groups', number(stats.total_lag)],
    ['Reset when behind', shadow.auto_reset_backlog_entries ? `${number(shadow.auto_reset_backlog_entries)} records` : 'never'],
  ];
  if (stats.cursor_resets) lines.push(['Cursors reset', number(stats.cursor_resets)]);
  return lines;
}

/** Where groups stand, in a shadow or in a topic. */
export const POSITIONS = [
  { title: 'Group', by: (each) => each.group, parts: (each) => [['span', { class: 'name' }, each.group]] },
  { title: 'State', by: (each) => String(each.state), parts: (each) => [tag(each.members ? 'good' : 'quiet', String(each.state).toLowerCase())] },
  { title: 'Members', numeric: true, by: (each) => each.members, parts: (each) => [number(each.members)] },
  { title: 'Lag', by: (each) => each.lag, parts: (each) => [bar(each.lag, each.largest)] },
  {
    title: 'Partitions',
    parts: (each) => [['details', {}, ['summary', {}, `${number(Object.keys(each.partitions).length)} committed`],
      ['ul', { class: 'ids' }, ...Object.entries(each.partitions).map(([partition, at]) => ['li', {}, ['span', { class: 'soft' }, partition], ` ${number(at.offset)} of ${number(at.end)}`])]]],
  },
];

const CURSORS = [
  ...POSITIONS,
  { title: 'Actions', parts: (each) => [button('reset', 'Reset…', 'danger', each.group, `Reset the cursor of ${each.group}`)] },
];

/** One topic: its policy, who owns it, who waits, which ids its producers have reached, its shadows; and what can be done. */

import { Refusal, get, path } from './api.js';
import { askToCreateShadow, askToDeleteShadow, askToEnd } from './acts.js';
import { build, fill } from './dom.js';
import { bar, number, since, tag } from './format.js';
import { table } from './table.js';
import { Named, facts } from './view.js';

export class Topic extends Named {
  constructor() {
    super({ title: 'Topic', every: 3_000 });
    /** @type {any} */
    this.topic = null;
    this.facts = build(['div', {}]);
    this.blocks = {
      owners: block('Owners by partition', (each) => each.partition, OWNERS),
      waiting: block('Waiting, in order', (each) => `${each.session} ${each.partition}`, WAITING),
      producers: block('Producers and last sequence ids', (each) => each.name, PRODUCERS),
      shadows: block('Shadows', (each) => each.name, SHADOWS),
    };
    this.content.append(this.facts, ...Object.values(this.blocks).map((each) => each.element));
    this.element.addEventListener('click', (event) => this.#act(event));
  }

  forget() {
    this.topic = null;
  }

  async load() {
    const topic = await get(`v1/topics/${path(this.name)}`);
    return { topic, producers: await producersOf(topic) };
  }

  /** @param {{topic: any, producers: {items: any[], why: string}}} found */
  show({ topic, producers }) {
    super.show(topic);
    this.topic = topic;
    const legal = topic.partitions > 0;
    fill(
      this.buttons,
      topic.owner ? button('fence', 'Fence…', 'danger') : null,
      topic.owner ? button('release', 'Release…') : null,
      legal ? button('shadow', 'Create shadow…') : null,
    );
    fill(/** @type {Element} */ (this.facts), facts(aboutTopic(topic)));
    const owners = Object.entries(topic.owners ?? {}).map(([partition, owner]) => ({ partition, ...owner }));
    const lags = Object.entries(topic.shadowReplication ?? {});
    const largest = Math.max(0, ...lags.map(([, stats]) => stats.total_lag ?? 0));
    this.blocks.owners.show(owners, topic.owners ? 'No partition has an owner now.' : '');
    this.blocks.waiting.show(topic.waiting, topic.policy ? 'No session waits.' : '');
    this.blocks.producers.show(producers.items, producers.why);
    this.blocks.shadows.show(topic.shadows.map((name) => ({ name, largest, ...topic.shadowReplication?.[name] })), legal ? 'It has no shadow.' : '');
  }

  /** @param {MouseEvent} event */
  #act(event) {
    const pressed = event.target instanceof Element && event.target.closest('button');
    if (!pressed || !this.topic) return;
    const done = () => this.poll.now();
    const { act = '', of = '' } = pressed.dataset;
    if (act === 'shadow') askToCreateShadow(this.name, done);
    else if (act === 'delete-shadow') askToDeleteShadow(this.name, of, done);
    else if (act === 'fence' || act === 'release') {
      const owner = of ? { ...this.topic.owners[of], partition: of } : { ...this.topic.owner, generation: this.topic.generation };
      askToEnd(act, this.name, owner, done);
    }
  }
}

/**
 * The newest producer names. The node that serves a topic knows them; another one passes the question on. A topic that
 * nobody serves is not asked about: that would make a node take it over.
 *
 * @param {any} topic
 * @returns {Promise<{items: any[], why: string}>}
 */
async function producersOf(topic) {
  if (!topic.policy?.deduplication) return { items: [], why: topic.policy ? 'No deduplication: no sequence ids are kept.' : '' };
  if (topic.deduplication_state === 'idle') return { items: [], why: 'No node serves the topic now: a node reads its ids at the next write.' };
  if (topic.deduplication_state !== 'elsewhere') {
    return { items: topic.producers, why: topic.deduplication_detail ?? 'No record with a sequence id has been written yet.' };
  }
  try {
    const found = await get(`v1/topics/${path(topic.topic)}/dedup`);
    return { items: found.items, why: 'No record with a sequence id has been written yet.' };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { items: [], why: error.message };
  }
}

/**
 * A list with its heading.
 *
 * @param {string} title
 * @param {(item: any) => string} key
 * @param {any[]} columns
 */
function block(title, key, columns) {
  const list = table(title, key, columns);
  const element = /** @type {HTMLElement} */ (build(['section', { class: 'block' }, ['h3', {}, title]]));
  element.append(...list.parts);
  return {
    element,
    /**
     * @param {any[]} items
     * @param {string} why said where there are none; empty: the block is left out then
     */
    show(items, why) {
      list.show(items, why);
      element.hidden = !items.length && !why;
    },
  };
}

/**
 * @param {string} act
 * @param {string} text
 * @param {string} [kind]
 * @param {string} [of]
 * @param {string} [label]
 */
function button(act, text, kind, of, label) {
  return ['button', { type: 'button', 'data-act': act, class: kind, 'data-of': of, 'aria-label': label }, text];
}

/** @param {any} topic */
function aboutTopic(topic) {
  const { policy, owner } = topic;
  const ids = { ready: 'good', lost: 'bad', reading: 'warn' }[topic.deduplication_state] ?? 'quiet';
  /** @type {[string, ...any[]][]} */
  const lines = [['Access', policy ? (policy.access_mode ?? 'not said').replaceAll('_', ' ') : 'not governed: it passes through']];
  if (policy) {
    if (owner) {
      lines.push(['Owner', ['span', { class: 'name' }, owner.name], ' ', ['span', { class: 'soft' }, owner.session]]);
      lines.push(['Mode of the owner', owner.mode.replaceAll('_', ' ')], ['Owner since', since(owner.since)]);
      if (owner.client) lines.push(['Client', ['span', { class: 'name' }, owner.client]]);
    } else if (!topic.owners) lines.push(['Owner', 'nobody']);
    lines.push(['Generation', topic.generation ? number(topic.generation) : 'never owned']);
    lines.push(['Scope', policy.scope ?? 'not said'], ['Deduplication', tag(ids, policy.deduplication ? topic.deduplication_state ?? 'on' : 'off')]);
    if (topic.deduplication_detail) lines.push(['Sequence ids', topic.deduplication_detail]);
    if (policy.exclusive_reader) lines.push(['Readers', 'exclusive: by claim']);
  }
  if (topic.partitions) lines.push(['Partitions', number(topic.partitions)]);
  if (topic.serving_node !== null) lines.push(['Served by', `node ${topic.serving_node}`]);
  return lines;
}

const OWNERS = [
  { title: 'Partition', parts: (each) => [each.partition] },
  { title: 'Owner', parts: (each) => [['span', { class: 'name' }, each.name], ' ', ['span', { class: 'soft' }, each.session]] },
  { title: 'Generation', numeric: true, parts: (each) => [number(each.generation)] },
  { title: 'Since', parts: (each) => [since(each.since)] },
  {
    title: 'Actions',
    parts: (each) => [['span', { class: 'buttons' },
      button('fence', 'Fence…', 'danger', each.partition, `Fence the owner of partition ${each.partition}`),
      button('release', 'Release…', undefined, each.partition, `Release partition ${each.partition}`)]],
  },
];

const WAITING = [
  { title: 'Producer', parts: (each) => [['span', { class: 'name' }, each.name]] },
  { title: 'Session', parts: (each) => [['span', { class: 'name' }, each.session]] },
  { title: 'Partition', parts: (each) => [each.partition ?? 'all'] },
  { title: 'Waiting for', parts: (each) => [since(each.since)] },
];

const PRODUCERS = [
  { title: 'Producer', parts: (each) => [['span', { class: 'name' }, each.name]] },
  { title: 'In all partitions', numeric: true, parts: (each) => [number(each.last_sequence_id)] },
  {
    title: 'By partition',
    parts: (each) => [['ul', { class: 'ids' }, ...Object.entries(each.last_sequence_ids).map(([partition, last]) => ['li', {}, ['span', { class: 'soft' }, partition], ` ${number(last)}`])]],
  },
];

const SHADOWS = [
  { title: 'Shadow', parts: (each) => [['a', { href: `#/shadows/${path(each.name)}`, class: 'name' }, each.name]] },
  { title: 'Groups', numeric: true, parts: (each) => [number(each.groups)] },
  { title: 'Lag', parts: (each) => [each.total_lag === undefined ? '–' : bar(each.total_lag, each.largest)] },
  { title: 'Actions', parts: (each) => [button('delete-shadow', 'Delete…', 'danger', each.name, `Delete the shadow ${each.name}`)] },
];

/**
 * The log of a topic: where its partitions begin and end, how fast it grows, which groups read it. Two readings of their
 * own, slower than that of the topic, as they ask Kafka.
 */

import { Refusal, get, path } from './api.js';
import { build, fill } from './dom.js';
import { number, size } from './format.js';
import { Poll } from './poll.js';
import { POSITIONS } from './shadow.js';
import { rate, sparkline } from './sparkline.js';
import { block } from './topic_parts.js';
import { facts } from './view.js';

const PARTITIONS = 200;
const GROUPS = 100;
const PARTITIONS_MS = 5_000;
const GROUPS_MS = 15_000;
/** Five minutes. */
const SAMPLES = 60;

export class TopicLog {
  name = '';

  /** @type {{at: number, ends: number}[]} */
  #samples = [];

  /** @type {Map<string, number>} by partition: its end in the reading before */
  #before = new Map();

  constructor() {
    this.facts = /** @type {HTMLElement} */ (build(['div', { class: 'block' }]));
    this.partitions = block('Partitions', (each) => String(each.partition), COLUMNS);
    this.groups = block('Consumer groups', (each) => each.group, POSITIONS);
    const log = (what) => `v1/topics/${path(this.name)}/${what}`;
    this.polls = [
      new Poll(PARTITIONS_MS, () => get(`${log('partitions')}?page_size=${PARTITIONS}`), (found) => this.#showLog(found), (error) => this.partitions.show([], said(error))),
      new Poll(GROUPS_MS, () => get(`${log('groups')}?page_size=${GROUPS}`), (found) => this.#showGroups(found), (error) => this.groups.show([], said(error))),
    ];
  }

  /** @param {string} name */
  open(name) {
    if (name !== this.name) {
      this.close();
      this.name = name;
      this.#samples = [];
      this.#before.clear();
      fill(this.facts);
      this.partitions.show([], '');
      this.groups.show([], '');
    }
    for (const poll of this.polls) poll.start();
  }

  close() {
    for (const poll of this.polls) poll.stop();
  }

  /** @param {{items: any[], next_page_token: string | null}} found */
  #showLog({ items, next_page_token: more }) {
    const now = performance.now() / 1000;
    const sum = (field) => items.reduce((total, each) => total + Number(each[field] ?? 0), 0);
    const ends = sum('end');
    if (ends < (this.#samples.at(-1)?.ends ?? 0)) this.#samples = []; // another topic of this name
    const last = this.#samples.at(-1);
    this.#samples = [...this.#samples.slice(-SAMPLES), { at: now, ends }];
    const rates = this.#samples.slice(1).map((each, index) => rate(this.#samples[index], each));
    const sized = items.some((each) => each.bytes !== null);
    fill(this.facts, ['h3', {}, 'Log'], facts([
      ['Grows by', rates.length ? `${number(round(rates.at(-1) ?? 0))} records/s` : 'shown after the next reading', ' ', sparkline(rates, 'Records per second')],
      ['Offsets kept', number(ends - sum('start'))],
      ['Size on the leaders', sized ? size(sum('bytes')) : 'not known'],
      ...(more === null ? [] : [['Of', `the first ${number(PARTITIONS)} partitions`]]),
    ]));
    this.partitions.show(items.map((each) => ({ ...each, growth: this.#growth(each, last && now - last.at) })), 'It has no partitions.');
  }

  /**
   * Offsets a second since the reading before; null at first.
   *
   * @param {any} found
   * @param {number | undefined} seconds
   */
  #growth({ partition, end }, seconds) {
    const before = this.#before.get(String(partition));
    this.#before.set(String(partition), Number(end));
    return before === undefined || !seconds ? null : round(Math.max(0, Number(end) - before) / seconds);
  }

  /** @param {{items: any[], next_page_token: string | null}} found */
  #showGroups({ items, next_page_token: more }) {
    const largest = Math.max(0, ...items.map((each) => each.lag));
    const why = more === null ? 'No group has committed an offset for it.' : '';
    this.groups.show(items.map((each) => ({ ...each, largest })), why);
  }
}

/** @param {Error} error */
function said(error) {
  return error instanceof Refusal ? error.message : '';
}

/** @param {number} value */
function round(value) {
  return value < 10 ? Math.round(value * 10) / 10 : Math.round(value);
}

const COLUMNS = [
  { title: 'Partition', by: (each) => each.partition, parts: (each) => [each.partition] },
  { title: 'Leader', by: (each) => each.leader, parts: (each) => [each.leader < 0 ? ['span', { class: 'soft' }, 'none'] : `broker ${each.leader}`] },
  { title: 'First offset', numeric: true, by: (each) => each.start, parts: (each) => [number(each.start)] },
  { title: 'Last offset', numeric: true, by: (each) => each.end, parts: (each) => [each.end > each.start ? number(Number(each.end) - 1) : 'empty'] },
  { title: 'Records/s', numeric: true, by: (each) => each.growth, parts: (each) => [number(each.growth)] },
  { title: 'Size', numeric: true, by: (each) => each.bytes, parts: (each) => [size(each.bytes)] },
];

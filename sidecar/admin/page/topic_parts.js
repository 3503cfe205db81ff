/** What the view of a topic is made of: its facts, and the columns of its lists. */

import { path } from './api.js';
import { build } from './dom.js';
import { bar, number, since, tag } from './format.js';
import { policyWords } from './policy.js';
import { table } from './table.js';

/**
 * A list with its heading.
 *
 * @param {string} title
 * @param {(item: any) => string} key
 * @param {any[]} columns
 */
export function block(title, key, columns) {
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
export function button(act, text, kind, of, label) {
  return ['button', { type: 'button', 'data-act': act, class: kind, 'data-of': of, 'aria-label': label }, text];
}

/**
 * Who owns a topic that nobody does.
 *
 * @param {any} policy
 */
export function ownerless(policy) {
  return policy.access_mode === 'shared' ? 'none: every client may write' : 'nobody';
}

/** @param {any} topic */
export function aboutTopic(topic) {
  const { policy, owner } = topic;
  const ids = { ready: 'good', lost: 'bad', reading: 'warn' }[topic.deduplication_state] ?? 'quiet';
  /** @type {[string, ...any[]][]} */
  const lines = [['Access', policy ? (policy.access_mode ?? 'not said').replaceAll('_', ' ') : 'not governed: requests pass through']];
  if (policy) {
    if (owner) {
      lines.push(['Owner', ['span', { class: 'name' }, owner.name], ' ', ['span', { class: 'soft' }, owner.session]]);
      lines.push(['Mode of the owner', owner.mode.replaceAll('_', ' ')], ['Owner since', since(owner.since)]);
      if (owner.client) lines.push(['Client', ['span', { class: 'name' }, owner.client]]);
    } else if (!topic.owners) lines.push(['Owner', ownerless(policy)]);
    lines.push(['Generation', topic.generation ? number(topic.generation) : 'never owned']);
    lines.push(['Scope', policy.scope ?? 'not said'], ['Deduplication', tag(ids, policy.deduplication ? topic.deduplication_state ?? 'on' : 'off')]);
    if (topic.deduplication_detail) lines.push(['Sequence ids', topic.deduplication_detail]);
    if (policy.exclusive_reader) lines.push(['Readers', 'exclusive: by claim']);
    if (policy.log_append_time) lines.push(['Time of records', 'LogAppendTime']);
  }
  if (topic.partitions) lines.push(['Partitions', number(topic.partitions)]);
  if (topic.serving_node !== null) lines.push(['Served by', `node ${topic.serving_node}`]);
  return lines;
}

export const POLICIES = [
  { title: 'Policy of', parts: (each) => [each.name.endsWith('*') ? ['a', { href: `#/topics/${path(each.name)}`, class: 'name' }, each.name] : ['span', { class: 'name' }, each.name]] },
  { title: 'Decides', parts: (each) => [policyWords(each.policy)] },
];

export const OWNERS = [
  { title: 'Partition', by: (each) => Number(each.partition), parts: (each) => [each.partition] },
  { title: 'Owner', by: (each) => each.name, parts: (each) => [['span', { class: 'name' }, each.name], ' ', ['span', { class: 'soft' }, each.session]] },
  { title: 'Generation', numeric: true, by: (each) => each.generation, parts: (each) => [number(each.generation)] },
  { title: 'Since', by: (each) => each.since, parts: (each) => [since(each.since)] },
  {
    title: 'Actions',
    parts: (each) => [['span', { class: 'buttons' },
      button('fence', 'Fence…', 'danger', each.partition, `Fence the owner of partition ${each.partition}`),
      button('release', 'Release…', undefined, each.partition, `Release partition ${each.partition}`)]],
  },
];

export const WAITING = [
  { title: 'Producer', parts: (each) => [['span', { class: 'name' }, each.name]] },
  { title: 'Session', parts: (each) => [['span', { class: 'name' }, each.session]] },
  { title: 'Partition', parts: (each) => [each.partition ?? 'all'] },
  { title: 'Waiting for', parts: (each) => [since(each.since)] },
];

export const PRODUCERS = [
  { title: 'Producer', by: (each) => each.name, parts: (each) => [['span', { class: 'name' }, each.name]] },
  { title: 'In all partitions', numeric: true, by: (each) => each.last_sequence_id, parts: (each) => [number(each.last_sequence_id < 0 ? null : each.last_sequence_id)] },
  {
    title: 'By partition',
    parts: (each) => [['ul', { class: 'ids' }, ...Object.entries(each.last_sequence_ids).map(([partition, last]) => ['li', {}, ['span', { class: 'soft' }, partition], ` ${number(last)}`])]],
  },
  { title: 'Actions', parts: (each) => [button('forget-name', 'Forget…', 'danger', each.name, `Forget the producer ${each.name}`)] },
];

export const SHADOWS = [
  { title: 'Shadow', by: (each) => each.name, parts: (each) => [['a', { href: `#/shadows/${path(each.name)}`, class: 'name' }, each.name]] },
  { title: 'Groups', numeric: true, by: (each) => each.groups, parts: (each) => [number(each.groups)] },
  { title: 'Lag', by: (each) => each.total_lag, parts: (each) => [each.total_lag === undefined ? '–' : bar(each.total_lag, each.largest)] },
  { title: 'Actions', parts: (each) => [button('delete-shadow', 'Delete…', 'danger', each.name, `Delete the shadow ${each.name}`)] },
];

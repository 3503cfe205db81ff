/** One topic: its policy, who owns it, who waits, which ids its producers have reached, its shadows; and what can be done. */

import { Refusal, get, path } from './api.js';
import { askToEnd } from './acts.js';
import { build, fill } from './dom.js';
import { number } from './format.js';
import { node } from './health.js';
import { nearestFirst } from './policy.js';
import { Records } from './records.js';
import { REFUSED, refusalKey } from './refusals.js';
import { askToCreateShadow, askToDeleteShadow } from './shadow_acts.js';
import { askToForgetName, askToForgetPolicy, askToSetPolicy } from './topic_acts.js';
import { TopicLog } from './topic_log.js';
import { OWNERS, POLICIES, PRODUCERS, SHADOWS, WAITING, aboutTopic, block, button } from './topic_parts.js';
import { Named, facts } from './view.js';

const REFUSALS = 20;

export class Topic extends Named {
  constructor() {
    super({ title: 'Topic', section: 'topics', every: 3_000 });
    /** @type {any} */
    this.topic = null;
    /** @type {any[]} */
    this.producers = [];
    this.facts = build(['div', {}]);
    this.blocks = {
      owners: block('Owners by partition', (each) => each.partition, OWNERS),
      waiting: block('Waiting, in order', (each) => `${each.session} ${each.partition}`, WAITING),
      producers: block('Producers and last sequence ids', (each) => each.name, PRODUCERS),
      shadows: block('Shadows', (each) => each.name, SHADOWS),
      refusals: block('Refused lately by this node', refusalKey, REFUSED),
      policies: block('Policies that cover it, the nearest first', (each) => each.name, POLICIES),
    };
    this.log = new TopicLog();
    this.records = new Records();
    const { owners, waiting, ...others } = this.blocks;
    const { facts: log, groups, partitions } = this.log;
    const blocks = [owners, waiting, groups, ...Object.values(others), partitions].map((each) => each.element);
    this.content.append(this.facts, log, ...blocks, this.records.element);
    this.element.addEventListener('click', (event) => this.#act(event));
  }

  /**
   * @param {string} name
   * @param {URLSearchParams} query
   */
  open(name, query) {
    super.open(name, query);
    this.log.open(name);
    this.records.open(name);
  }

  close() {
    super.close();
    this.log.close();
  }

  forget() {
    this.topic = null;
    this.producers = [];
  }

  async load() {
    const topic = await get(`v1/topics/${path(this.name)}`);
    return { topic, producers: await producersOf(topic), refusals: await get(`v1/refusals?${new URLSearchParams({ topic: this.name, page_size: String(REFUSALS) })}`) };
  }

  /** @param {{topic: any, producers: {items: any[], why: string}, refusals: {items: any[]}}} found */
  show({ topic, producers, refusals }) {
    super.show(topic);
    this.topic = topic;
    this.producers = producers.items;
    const own = topic.policies?.[topic.topic];
    const legal = !topic.topic.startsWith('__');
    fill(
      this.buttons,
      topic.owner ? button('fence', 'Fence…', 'danger') : null,
      topic.owner ? button('release', 'Release…') : null,
      legal ? button('policy', 'Set policy…') : null,
      own ? button('forget-policy', 'Forget policy…', 'danger') : null,
      legal && topic.partitions ? button('shadow', 'Create shadow…') : null,
    );
    fill(/** @type {Element} */ (this.facts), facts(aboutTopic(topic)));
    const owners = Object.entries(topic.owners ?? {}).map(([partition, owner]) => ({ partition, ...owner }));
    const lags = Object.entries(topic.shadowReplication ?? {});
    const largest = Math.max(0, ...lags.map(([, stats]) => stats.total_lag ?? 0));
    this.blocks.owners.show(owners, topic.owners ? 'No partition has an owner at present.' : '');
    this.blocks.waiting.show(topic.waiting, topic.policy ? 'No session waits.' : '');
    this.blocks.producers.show(producers.items, producers.why);
    this.blocks.shadows.show(topic.shadows.map((name) => ({ name, largest, ...topic.shadowReplication?.[name] })), topic.partitions ? 'The topic has no shadow.' : '');
    this.blocks.refusals.show(refusals.items, whyNothing(topic));
    this.blocks.policies.show(nearestFirst(topic.policies ?? {}).map(([name, policy]) => ({ name, policy })), '');
  }

  /** @param {MouseEvent} event */
  #act(event) {
    const pressed = event.target instanceof Element && event.target.closest('button');
    if (!pressed || !this.topic) return;
    const done = () => this.poll.now();
    const { act = '', of = '' } = pressed.dataset;
    const own = this.topic.policies?.[this.name];
    if (act === 'shadow') askToCreateShadow(this.name, done);
    else if (act === 'delete-shadow') askToDeleteShadow(this.name, of, done);
    else if (act === 'policy') askToSetPolicy(this.name, own, done);
    else if (act === 'forget-policy') askToForgetPolicy(this.name, own, done);
    else if (act === 'forget-name') askToForgetName(this.name, of, number(this.producers.find((each) => each.name === of)?.last_sequence_id), done);
    else if (act === 'fence' || act === 'release') {
      const owner = of ? { ...this.topic.owners[of], partition: of } : { ...this.topic.owner, generation: this.topic.generation };
      askToEnd(act, this.name, owner, done);
    }
  }
}

/**
 * Of the refusals, each node keeps its own.
 *
 * @param {any} topic
 */
function whyNothing({ serving_node: serving }) {
  return serving === null || serving === node.id ? 'This node has refused no request for it lately.' : `This node has refused no request for it lately. Node ${serving} serves the topic and has its own list.`;
}

/**
 * The newest producer names. The node that serves a topic knows them; another one passes the question on. A topic that
 * nobody serves is not asked about: that would make a node take it over.
 *
 * @param {any} topic
 * @returns {Promise<{items: any[], why: string}>}
 */
async function producersOf(topic) {
  if (!topic.policy?.deduplication) return { items: [], why: topic.policy ? 'No deduplication: no sequence ids are stored.' : '' };
  if (topic.deduplication_state === 'idle') return { items: [], why: 'No node serves the topic at present: a node reads its ids at the next write.' };
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

/** What changes topics: made, their policies set and forgotten, a producer name forgotten. */

import { Refusal, call, get, path } from './api.js';
import { about, area, ask, count, input, lines, value } from './dialog.js';
import { byId, fill } from './dom.js';
import { policyFields, policyWords, wantedPolicy } from './policy.js';

const TYPING_MS = 250;
const NAMED = 8;

/** @param {() => void} after */
export function askToCreateTopic(after) {
  const parts = [
    ['p', {}, 'The brokers’ defaults apply to empty fields. With a choice below, or a policy of a prefix, the topic is governed from its first record on.'],
    ...input('topic-name', 'Name', { required: true, placeholder: 'orders' }),
    ...input('topic-partitions', 'Partitions', { inputmode: 'numeric', placeholder: 'the brokers’ default' }),
    ...input('topic-replication', 'Replication factor', { inputmode: 'numeric', placeholder: 'the brokers’ default' }),
    ...area('topic-configs', 'Kafka’s settings, one per line', '', 'retention.ms=604800000'),
    ['fieldset', {}, ['legend', {}, 'Policy'], ...policyFields({}, 'not said')],
  ];
  ask('Create a topic', 'Create', false, parts, async () => {
    const topic = value('topic-name');
    if (!topic) throw new Refusal(0, 'A topic needs a name.');
    const policy = wantedPolicy();
    const partitions = count('topic-partitions', 'The number of partitions');
    const factor = count('topic-replication', 'The replication factor');
    const configs = Object.fromEntries(lines('topic-configs').map(setting));
    const found = await call('POST', 'v1/topics', {
      body: {
        topic,
        ...(partitions !== null && { partitions }),
        ...(factor !== null && { replication_factor: factor }),
        ...(Object.keys(configs).length && { configs }),
        ...(Object.keys(policy).length && { policy }),
      },
    });
    return `The topic ${topic} was created, partitions: ${found.partitions}.`;
  }, after);
  byId('topic-name').focus();
}

/** @param {string} line */
function setting(line) {
  const at = line.indexOf('=');
  if (at < 1) throw new Refusal(0, `Write a setting as name=value, not “${line}”.`);
  return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}

/**
 * @param {string} name a topic, or a prefix with * behind it; empty: the person says which
 * @param {Record<string, any> | undefined} own what its own policy decides, undefined: it has none, or is not known yet
 * @param {() => void} after
 */
export function askToSetPolicy(name, own, after) {
  const parts = [
    ['p', {}, 'Only the fields that you choose change. The node answers when every live node applies the policy. Set it before writers start: a batch in flight may still pass.'],
    ...input('policy-name', 'Topic, or a prefix followed by *', { value: name, readonly: name !== '', required: true, placeholder: 'payments.*', 'aria-describedby': 'policy-covers' }),
    ['p', { id: 'policy-covers', class: 'soft', role: 'status' }],
    ...policyFields(own ?? {}, name ? 'decided by wider policies' : 'do not change'),
  ];
  ask(name ? `Set the policy of ${name}` : 'Set a policy', 'Set', false, parts, async () => {
    const chosen = value('policy-name');
    if (!chosen) throw new Refusal(0, 'Enter a topic, or a prefix followed by *.');
    const policy = wantedPolicy();
    if (!Object.keys(policy).length) throw new Refusal(0, 'Nothing to set: choose at least one field.');
    const found = await call('PUT', `v1/topics/${path(chosen)}/policy`, { body: policy });
    return `All live nodes apply the policy of ${chosen}. ${policyWords(found.policy ?? {})}.`;
  }, after);
  const typed = byId('policy-name');
  let typing = 0;
  typed.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(() => void showCovered(), TYPING_MS);
  });
  void showCovered();
  byId(name ? 'policy-access_mode' : 'policy-name').focus();
}

/** Below the name: which topics it covers now. */
async function showCovered() {
  const name = value('policy-name');
  const place = byId('policy-covers');
  if (!name.endsWith('*')) {
    const fixed = byId('policy-name').hasAttribute('readonly');
    fill(place, name && !fixed ? 'Only this topic. It does not have to exist yet.' : '');
    return;
  }
  let said;
  try {
    const { items, next_page_token: more } = await get(coveredBy(name, NAMED));
    const names = items.map((each) => each.topic).filter((each) => each !== name);
    said = names.length ? `Covers now: ${names.join(', ')}${more === null ? '' : ' and more'}. A topic’s own policy and a longer prefix override it; a shadow has its source’s.` : 'Covers no topic yet.';
  } catch (error) {
    said = /** @type {Error} */ (error).message;
  }
  if (document.contains(place) && value('policy-name') === name) fill(place, said);
}

/**
 * The path of what a prefix covers.
 *
 * @param {string} name the prefix with its *
 * @param {number} most
 */
export function coveredBy(name, most) {
  return `v1/topics?${new URLSearchParams({ prefix: name.slice(0, -1), page_size: String(most) })}`;
}

/**
 * @param {string} name
 * @param {Record<string, any>} own
 * @param {() => void} after
 */
export function askToForgetPolicy(name, own, after) {
  const parts = [
    ['p', {}, 'From then on wider policies apply. If there is none, requests pass through: no client is refused and no duplicate is dropped.'],
    about([name.endsWith('*') ? 'Prefix' : 'Topic', name], ['Its policy', policyWords(own)]),
  ];
  ask(`Forget the policy of ${name}?`, 'Forget', true, parts, async () => {
    await call('DELETE', `v1/topics/${path(name)}/policy`);
    return `The policy of ${name} was removed.`;
  }, after);
}

/**
 * @param {string} topic
 * @param {string} producer
 * @param {string} last in words
 * @param {() => void} after
 */
export function askToForgetName(topic, producer, last, after) {
  const parts = [
    ['p', {}, 'The node forgets which sequence ids of this name are in the log. A producer that sends a record again under this name writes it twice. The node refuses while a connected session uses the name.'],
    about(['Topic', topic], ['Producer', producer], ['Last sequence id', last]),
  ];
  ask(`Forget the producer ${producer}?`, 'Forget', true, parts, async () => {
    await call('DELETE', `v1/topics/${path(topic)}/dedup/${path(producer)}`);
    return `The ids of producer ${producer} of ${topic} were deleted.`;
  }, after);
}

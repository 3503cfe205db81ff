/** What a policy says: each field as a control of a form, as a value to send, and as words. */

import { choice, value } from './dialog.js';

/** Fields, what they are called, and what each value is called. */
const FIELDS = {
  access_mode: {
    label: 'Access mode',
    values: {
      shared: 'shared: several may write',
      exclusive: 'exclusive: one may write, others are refused',
      wait_for_exclusive: 'wait for exclusive: one may write, others wait',
      exclusive_with_fencing: 'exclusive with fencing: the newest one may write',
    },
  },
  scope: { label: 'One owner for', values: { topic: 'the whole topic', partition: 'each partition' } },
  deduplication: { label: 'Deduplication by sequence id', values: { true: 'on', false: 'off' } },
  exclusive_reader: { label: 'Exclusive reader', values: { true: 'on: groups read by claim', false: 'off' } },
  log_append_time: { label: 'Time of records', values: { true: 'set by the broker (LogAppendTime)', false: 'set by the producer (CreateTime)' } },
};

/**
 * A control for each field.
 *
 * @param {Record<string, any>} now what the policy itself decides
 * @param {string} [none] what a field that it leaves open is called
 */
export function policyFields(now, none = 'decided by wider policies') {
  return Object.entries(FIELDS).flatMap(([name, { label, values }]) => {
    const said = now[name] === undefined ? none : `do not change: ${values[String(now[name])].split(':')[0]}`;
    return choice(`policy-${name}`, label, [['', said], ...Object.entries(values)]);
  });
}

/** What was chosen: the fields that are to change. */
export function wantedPolicy() {
  /** @type {Record<string, string | boolean>} */
  const found = {};
  for (const name of Object.keys(FIELDS)) {
    const chosen = value(`policy-${name}`);
    if (chosen) found[name] = chosen === 'true' || (chosen === 'false' ? false : chosen);
  }
  return found;
}

/**
 * What a policy decides, in short.
 *
 * @param {Record<string, any>} policy
 */
export function policyWords(policy) {
  const words = Object.entries(FIELDS).filter(([name]) => policy[name] !== undefined);
  return words.map(([name, { label, values }]) => `${label}: ${values[String(policy[name])]?.split(':')[0] ?? policy[name]}`).join(' · ') || 'sets no field: the defaults apply';
}

/**
 * The policies that cover a topic, the nearest first: its own, then the longest prefix.
 *
 * @param {Record<string, any>} policies by topic or prefix
 */
export function nearestFirst(policies) {
  const reach = (name) => (name.endsWith('*') ? name.length : Infinity);
  return Object.entries(policies).sort(([one], [other]) => reach(other) - reach(one));
}

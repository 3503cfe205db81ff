/** What ends an ownership: fence and release, if the owner is still the one that was seen. */

import { call, path } from './api.js';
import { about, ask } from './dialog.js';
import { number } from './format.js';

const ENDS = {
  fence: {
    verb: 'Fence',
    does: 'The owner is deposed permanently: every batch of its session is refused with error 90, and the application has to be restarted. Then any session may claim.',
    done: 'was fenced',
  },
  release: {
    verb: 'Release',
    does: 'The owner is cleared. Any session may claim with its next record, also the former owner’s.',
    done: 'was released',
  },
};

/**
 * @param {'fence' | 'release'} act
 * @param {string} topic
 * @param {{name: string, session: string, generation: number | bigint, partition?: string}} owner
 * @param {() => void} after
 */
export function askToEnd(act, topic, owner, after) {
  const { verb, does, done } = ENDS[act];
  const where = owner.partition === undefined ? topic : `partition ${owner.partition} of ${topic}`;
  const query = owner.partition === undefined ? '' : `?partition=${owner.partition}`;
  /** @type {[string, string][]} */
  const facts = [['Topic', topic], ['Owner', owner.name], ['Session', owner.session], ['Generation', number(owner.generation)]];
  if (owner.partition !== undefined) facts.splice(1, 0, ['Partition', owner.partition]);
  ask(`${verb} the owner of ${where}?`, verb, act === 'fence', [['p', {}, does], about(...facts)], async () => {
    await call('POST', `v1/topics/${path(topic)}/${act}${query}`, { generation: owner.generation });
    return `${owner.name}, generation ${number(owner.generation)} of ${where}, ${done}.`;
  }, after);
}

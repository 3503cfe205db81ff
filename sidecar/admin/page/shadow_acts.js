/** What changes shadows: made, deleted, who may read them, where their groups stand. */

import { Refusal, call, path } from './api.js';
import { about, area, ask, choice, count, input, lines, value } from './dialog.js';
import { byId } from './dom.js';
import { number } from './format.js';

/**
 * @param {string} source empty: the person says which
 * @param {() => void} after
 */
export function askToCreateShadow(source, after) {
  const parts = [
    ['p', {}, 'A read-only name for the log of a topic, with its own readers and cursors. Nothing is copied.'],
    ...input('shadow-source', 'Source topic', { value: source, readonly: source !== '', required: true }),
    ...input('shadow-name', 'Name of the shadow', { required: true, placeholder: source ? `${source}-audit` : 'orders-audit' }),
    ...area('shadow-allow', 'Principals that may read it, one per line; empty: everybody', '', 'User:audit'),
  ];
  ask('Create a shadow', 'Create', false, parts, async () => {
    const [from, name] = [value('shadow-source'), value('shadow-name')];
    if (!from || !name) throw new Refusal(0, 'Enter the name of the source and the name of the shadow.');
    const allow = lines('shadow-allow');
    await call('POST', `v1/topics/${path(from)}/shadows`, { body: allow.length ? { name, allow } : { name } });
    return `The shadow ${name} of ${from} was created.`;
  }, after);
  byId(source ? 'shadow-name' : 'shadow-source').focus();
}

/**
 * @param {string} source
 * @param {string} shadow
 * @param {() => void} after
 */
export function askToDeleteShadow(source, shadow, after) {
  const parts = [
    ['p', {}, 'Its readers are disconnected and its cursors are deleted permanently. The source and its records do not change.'],
    about(['Shadow', shadow], ['Source', source]),
  ];
  ask(`Delete the shadow ${shadow}?`, 'Delete', true, parts, async () => {
    await call('DELETE', `v1/topics/${path(source)}/shadows/${path(shadow)}`);
    return `The shadow ${shadow} of ${source} was deleted.`;
  }, after);
}

/**
 * @param {{name: string, source: string, allow: string[], auto_reset_backlog_entries: number}} shadow
 * @param {() => void} after
 */
export function askToChangeShadow(shadow, after) {
  const { name, allow, auto_reset_backlog_entries: backlog } = shadow;
  const parts = [
    ['p', {}, 'A client that is not on the list any more is refused with 29 TOPIC_AUTHORIZATION_FAILED from its next Fetch on. Cursors do not change.'],
    about(['Shadow', name], ['Source', shadow.source]),
    ...area('allow', 'Principals that may read it, one per line; User:* is everybody, empty is nobody', allow.join('\n'), 'User:audit'),
    ...input('backlog', 'Reset a cursor to the end if it is this number of records behind; 0: never', { value: String(backlog), inputmode: 'numeric' }),
  ];
  ask(`Change the shadow ${name}`, 'Change', false, parts, async () => {
    const wanted = { allow: lines('allow'), auto_reset_backlog_entries: count('backlog', 'The number of records') ?? 0 };
    const found = await call('PATCH', `v1/shadows/${path(name)}`, { body: wanted });
    return `The shadow ${name} may be read by ${found.allow.join(', ') || 'nobody'}.`;
  }, after);
  byId('allow').focus();
}

/**
 * @param {string} shadow
 * @param {{group: string, lag: number, state: string, members: number}} cursor
 * @param {() => void} after
 */
export function askToResetCursor(shadow, cursor, after) {
  const parts = [
    ['p', {}, 'The group continues at the new position: it skips or reads again the records in between. The node refuses this while the group has members.'],
    about(['Shadow', shadow], ['Group', cursor.group], ['State', `${String(cursor.state).toLowerCase()}, members ${number(cursor.members)}`], ['Lag now', number(cursor.lag)]),
    ...choice('reset-to', 'To', [
      ['latest', 'the end: skip all present records'],
      ['earliest', 'the beginning: read all present records again'],
      ['timestamp', 'the first record at or after a time'],
      ['offset', 'an offset'],
    ]),
    ['div', { id: 'reset-by-time', hidden: true }, ...input('reset-time', 'Time, in the time zone of this browser', { type: 'datetime-local', step: '1' })],
    ['div', { id: 'reset-by-offset', hidden: true }, ...input('reset-offset', 'Offset', { inputmode: 'numeric' })],
    ...input('reset-partitions', 'Partitions, separated by commas; empty: all', { placeholder: '0, 3' }),
  ];
  ask(`Reset the cursor of ${cursor.group}?`, 'Reset', true, parts, async () => {
    const body = { to: target(), ...partitions() };
    const found = await call('POST', `v1/shadows/${path(shadow)}/cursors/${path(cursor.group)}/reset`, { body });
    return `The cursor of ${cursor.group} on ${shadow} was reset: its lag is ${number(found.lag)} records.`;
  }, after);
  byId('reset-to').addEventListener('change', () => {
    byId('reset-by-time').hidden = value('reset-to') !== 'timestamp';
    byId('reset-by-offset').hidden = value('reset-to') !== 'offset';
  });
  byId('reset-to').focus();
}

function target() {
  const to = value('reset-to');
  if (to === 'offset') {
    const offset = count('reset-offset', 'The offset');
    if (offset === null) throw new Refusal(0, 'Say which offset.');
    return { offset };
  }
  if (to !== 'timestamp') return to;
  const at = new Date(value('reset-time'));
  if (Number.isNaN(at.getTime())) throw new Refusal(0, 'Say which time.');
  return { timestamp: at.toISOString() };
}

function partitions() {
  const typed = value('reset-partitions').split(',').map((each) => each.trim()).filter(Boolean);
  if (!typed.every((each) => /^\d{1,9}$/.test(each))) throw new Refusal(0, 'Enter partitions as numbers, separated by commas.');
  return typed.length ? { partitions: typed.map(Number) } : {};
}

/**
 * What changes something, each asked back in a dialog that names what it is about. What the node answers is shown in the
 * dialog where it is no, and above the sections where it is yes.
 */

import { Refusal, call, path, token } from './api.js';
import { byId, fill } from './dom.js';
import { number } from './format.js';

const ENDS = {
  fence: {
    verb: 'Fence',
    does: 'The owner is deposed for good: whatever its session sends is refused with error 90, and it has to be started again. Anybody may claim then.',
    done: 'was fenced',
  },
  release: {
    verb: 'Release',
    does: 'The owner is cleared. Its session may claim again with its next record, as anybody may.',
    done: 'was released',
  },
};

/** @type {(() => Promise<string>) | null} */
let pending = null;

/**
 * Fence or release, if the owner is still the one that was seen.
 *
 * @param {'fence' | 'release'} act
 * @param {string} topic
 * @param {{name: string, session: string, generation: number | bigint, partition?: string}} owner
 * @param {() => void} after
 */
export function askToEnd(act, topic, owner, after) {
  const { verb, does, done } = ENDS[act];
  const where = owner.partition === undefined ? topic : `partition ${owner.partition} of ${topic}`;
  const query = owner.partition === undefined ? '' : `?partition=${owner.partition}`;
  const lines = [
    ['p', {}, does],
    ['dl', { class: 'facts' }, fact('Topic', topic), ...(owner.partition === undefined ? [] : [fact('Partition', owner.partition)]), fact('Owner', owner.name), fact('Session', owner.session), fact('Generation', number(owner.generation))],
  ];
  ask(`${verb} the owner of ${where}?`, verb, act === 'fence', lines, async () => {
    await call('POST', `v1/topics/${path(topic)}/${act}${query}`, { generation: owner.generation });
    return `${owner.name}, generation ${number(owner.generation)} of ${where}, ${done}.`;
  }, after);
}

/**
 * @param {string} source empty: the person says which
 * @param {() => void} after
 */
export function askToCreateShadow(source, after) {
  const lines = [
    ['p', {}, 'A read-only name over the log of a topic, with readers and cursors of its own. Nothing is copied.'],
    ...field('shadow-source', 'Source topic', ['input', { id: 'shadow-source', value: source, readonly: source !== '', required: true, autocomplete: 'off', spellcheck: 'false' }]),
    ...field('shadow-name', 'Name of the shadow', ['input', { id: 'shadow-name', required: true, autocomplete: 'off', spellcheck: 'false', placeholder: source ? `${source}-audit` : 'orders-audit' }]),
    ...field('shadow-allow', 'Who may read it, one principal in a line; empty: everybody', ['textarea', { id: 'shadow-allow', rows: '2', spellcheck: 'false', placeholder: 'User:audit' }]),
  ];
  ask('Create a shadow', 'Create', false, lines, async () => {
    const [from, name] = [value('shadow-source'), value('shadow-name')];
    if (!from || !name) throw new Refusal(0, 'A shadow needs the name of its source and one of its own.');
    const allow = value('shadow-allow').split('\n').map((each) => each.trim()).filter(Boolean);
    await call('POST', `v1/topics/${path(from)}/shadows`, { body: allow.length ? { name, allow } : { name } });
    return `The shadow ${name} of ${from} is there.`;
  }, after);
  byId(source ? 'shadow-name' : 'shadow-source').focus();
}

/**
 * @param {string} source
 * @param {string} shadow
 * @param {() => void} after
 */
export function askToDeleteShadow(source, shadow, after) {
  const lines = [
    ['p', {}, 'Its readers are cut off and its cursors are gone for good. The source and its records stay as they are.'],
    ['dl', { class: 'facts' }, fact('Shadow', shadow), fact('Source', source)],
  ];
  ask(`Delete the shadow ${shadow}?`, 'Delete', true, lines, async () => {
    await call('DELETE', `v1/topics/${path(source)}/shadows/${path(shadow)}`);
    return `The shadow ${shadow} of ${source} is deleted.`;
  }, after);
}

/**
 * @param {string} title
 * @param {string} verb
 * @param {boolean} dangerous
 * @param {any[]} lines parts
 * @param {() => Promise<string>} act answers with the text to show then
 * @param {() => void} after runs when it was tried, whatever came of it
 */
function ask(title, verb, dangerous, lines, act, after) {
  const button = /** @type {HTMLButtonElement} */ (byId('dialog-act'));
  fill(byId('dialog-title'), title);
  fill(byId('dialog-body')); // what somebody typed the last time must not stand there
  fill(byId('dialog-body'), ...lines);
  fill(byId('dialog-error'));
  fill(button, verb);
  button.className = dangerous ? 'danger solid' : 'primary';
  button.hidden = false;
  button.disabled = false;
  showResult('');
  pending = async () => {
    try {
      return await act();
    } finally {
      after();
    }
  };
  const dialog = /** @type {HTMLDialogElement} */ (byId('dialog'));
  dialog.showModal();
  byId('dialog-title').focus(); // what it is about is read first, and Enter does nothing yet
}

async function run() {
  const button = /** @type {HTMLButtonElement} */ (byId('dialog-act'));
  const [asked, title] = [pending, byId('dialog-title').textContent];
  if (!asked || button.disabled) return;
  button.disabled = true;
  fill(byId('dialog-error'));
  try {
    const message = await asked();
    if (pending === asked) /** @type {HTMLDialogElement} */ (byId('dialog')).close();
    showResult(message);
  } catch (error) {
    const message = explained(/** @type {Error} */ (error));
    if (pending !== asked) { // the dialog was closed meanwhile, or is about something else
      showResult(`${title} ${message}`, false);
      return;
    }
    button.disabled = false;
    button.hidden = error instanceof Refusal && error.status === 412;
    fill(byId('dialog-error'), message);
  }
}

/**
 * Above the sections: what came of something.
 *
 * @param {string} text
 * @param {boolean} [good]
 */
export function showResult(text, good = true) {
  const place = byId('result');
  place.classList.toggle('bad', !good);
  fill(place, text);
}

/** @param {Error} error */
function explained(error) {
  if (!(error instanceof Refusal)) return `${error.message}: it may have been done all the same.`;
  if (error.status === 412) return `The owner has changed meanwhile, so nothing was done: ${error.message}. Close this and look again.`;
  if (error.status === 401 && !token.get()) return `The node wants its admin token: ${error.message}. Close this and enter it at the top.`;
  if (error.status === 401) return `The token at the top is not the node's: ${error.message}.`;
  return error.message;
}

/** Listen to the dialog, once. */
export function startActs() {
  const dialog = /** @type {HTMLDialogElement} */ (byId('dialog'));
  byId('dialog-form').addEventListener('submit', (event) => {
    event.preventDefault();
    void run();
  });
  byId('dialog-close').addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => {
    pending = null;
    if (document.activeElement === document.body || document.activeElement === null) document.querySelector('main h2')?.focus();
  });
}

/** @param {string} id */
function value(id) {
  return /** @type {HTMLInputElement} */ (byId(id)).value.trim();
}

/**
 * @param {string} name
 * @param {string} text
 */
function fact(name, text) {
  return ['div', {}, ['dt', {}, name], ['dd', { class: 'name' }, text]];
}

/**
 * @param {string} id
 * @param {string} label
 * @param {any} control a part
 */
function field(id, label, control) {
  return [['label', { for: id }, label], control];
}

/**
 * The dialog that asks back before anything is changed, and names what it is about. What the node answers is shown in the
 * dialog where it is no, and above the sections where it is yes.
 */

import { Refusal, token } from './api.js';
import { byId, fill } from './dom.js';

/** @type {(() => Promise<string>) | null} */
let pending = null;

/**
 * @param {string} title
 * @param {string} verb
 * @param {boolean} dangerous
 * @param {any[]} lines parts
 * @param {() => Promise<string>} act answers with the text to show then
 * @param {() => void} after runs when it was tried, whatever came of it
 */
export function ask(title, verb, dangerous, lines, act, after) {
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

/**
 * What went wrong, and what helps.
 *
 * @param {Error} error
 */
export function explained(error) {
  if (!(error instanceof Refusal)) return `${error.message}: it may have been done nevertheless.`;
  if (error.status === 412) return `The owner has changed meanwhile, so nothing was done: ${error.message}. Close this dialog and check the owner.`;
  if (error.status === 401 && !token.get()) return `The node needs its admin token: ${error.message}. Close this dialog and enter the token at the top.`;
  if (error.status === 401) return `The token at the top is wrong: ${error.message}.`;
  return error.message;
}

/** Listen to the dialog, once. */
export function startDialog() {
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

// What stands in a dialog ---------------------------------------------------------------------------------------------

/** @param {string} id */
export function value(id) {
  return /** @type {HTMLInputElement} */ (byId(id)).value.trim();
}

/**
 * What was typed, one thing in a line.
 *
 * @param {string} id
 */
export function lines(id) {
  return value(id).split('\n').map((each) => each.trim()).filter(Boolean);
}

/**
 * A whole number that was typed, null where nothing was.
 *
 * @param {string} id
 * @param {string} what it is called in a refusal
 */
export function count(id, what) {
  const typed = value(id);
  if (!typed) return null;
  if (!/^\d{1,15}$/.test(typed)) throw new Refusal(0, `${what} has to be a whole number, not “${typed}”.`);
  return Number(typed);
}

/** @param {...[string, string]} pairs names and values */
export function about(...pairs) {
  return ['dl', { class: 'facts' }, ...pairs.map(([name, text]) => ['div', {}, ['dt', {}, name], ['dd', { class: 'name' }, text]])];
}

/**
 * @param {string} id
 * @param {string} label
 * @param {any} control a part
 */
export function field(id, label, control) {
  return [['label', { for: id }, label], control];
}

/**
 * @param {string} id
 * @param {string} label
 * @param {Record<string, any>} [more] attributes
 */
export function input(id, label, more = {}) {
  return field(id, label, ['input', { id, autocomplete: 'off', spellcheck: 'false', ...more }]);
}

/**
 * @param {string} id
 * @param {string} label
 * @param {string} text
 * @param {string} [placeholder]
 */
export function area(id, label, text, placeholder) {
  return field(id, label, ['textarea', { id, rows: '3', spellcheck: 'false', placeholder }, text]);
}

/**
 * @param {string} id
 * @param {string} label
 * @param {[string, string][]} options values and what they are called; the first is chosen
 */
export function choice(id, label, options) {
  return field(id, label, ['select', { id }, ...options.map(([each, text]) => ['option', { value: each }, text])]);
}

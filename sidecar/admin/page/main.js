/** Puts the page together: which section is shown (by the part of the address behind #), the token, the two streams. */

import { address, remember } from './address.js';
import { token } from './api.js';
import { Clients } from './clients.js';
import { showResult, startDialog } from './dialog.js';
import { byId } from './dom.js';
import { feed, startFeed } from './feed.js';
import { feedOf, startPanel } from './feed_panel.js';
import { startHealth } from './health.js';
import { Prefix } from './prefix.js';
import { Refusals } from './refusals.js';
import { Settings } from './settings.js';
import { Shadow } from './shadow.js';
import { Shadows } from './shadows.js';
import { retitle } from './title.js';
import { Topic } from './topic.js';
import { Topics } from './topics.js';

const HAPPENED_MS = 300;
/** What a header can hold, and the node's setting takes. */
const TOKEN = /^[!-~]+$/;

/** By the address: a section, one thing in it, and what has a name that ends with a star. */
const VIEWS = {
  topics: { all: new Topics(), one: new Topic(), many: new Prefix() },
  shadows: { all: new Shadows(), one: new Shadow(), many: null },
  refusals: { all: new Refusals(), one: null, many: null },
  clients: { all: new Clients(), one: null, many: null },
  settings: { all: new Settings(), one: null, many: null },
};

/** @type {import('./view.js').View | null} */
let shown = null;

/** @param {boolean} asked whether a person went there, whose focus then belongs at the heading */
function route(asked) {
  const { section, name, query } = address();
  const place = Object.hasOwn(VIEWS, section) ? section : 'topics';
  const known = VIEWS[place];
  const view = (name.endsWith('*') && known.many) || (name && known.one) || known.all;
  for (const link of document.querySelectorAll('.tabs a')) {
    const here = link.getAttribute('href') === `#/${place}`;
    if (here) link.setAttribute('aria-current', view === known.all ? 'page' : 'true');
    else link.removeAttribute('aria-current');
  }
  if (shown !== view) {
    shown?.close();
    byId('main').replaceChildren(view.element);
    shown = view;
  }
  if (view === known.all) remember(place);
  retitle({ view: view === known.all ? view.title : name });
  feedOf(view === known.all ? '' : name);
  view.open(name, query);
  if (asked) view.heading.focus();
}

function tellToken() {
  const set = token.get() !== '';
  const input = /** @type {HTMLInputElement} */ (byId('token'));
  input.value = '';
  input.placeholder = set ? 'set for this tab' : 'not set';
  byId('token-forget').hidden = !set;
}

function startToken() {
  byId('token-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const typed = /** @type {HTMLInputElement} */ (byId('token')).value.trim();
    if (!typed) return;
    if (!TOKEN.test(typed)) {
      showResult('This is not a token: a token has ASCII characters, without spaces.', false);
      return;
    }
    token.set(typed);
    tellToken();
    showResult('The token is kept in this tab until it is closed.');
  });
  byId('token-forget').addEventListener('click', () => {
    token.set('');
    tellToken();
    showResult('The token was deleted.');
    byId('token').focus();
  });
  tellToken();
}

let soon = 0;
feed.addEventListener('happened', () => {
  clearTimeout(soon);
  soon = setTimeout(() => shown?.poll.now(), HAPPENED_MS); // one reading for many events at once
});
byId('skip').addEventListener('click', (event) => {
  event.preventDefault();
  byId('main').focus();
});
window.addEventListener('hashchange', () => route(true));
byId('unloaded').remove();
startToken();
startDialog();
startHealth();
startPanel();
startFeed();
route(false);

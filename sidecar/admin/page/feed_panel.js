/** How the feed is shown: of all topics, or of the one that is on the screen; folded where the screen is narrow. */

import { byId, fill } from './dom.js';

/** As in the style sheet. */
const NARROW = matchMedia('(max-width: 759px)');

/** What is on the screen: a topic, a shadow, a prefix with its *; empty: none of them. */
let named = '';
let all = false;

/**
 * Another view is on the screen.
 *
 * @param {string} name
 */
export function feedOf(name) {
  if (name !== named) all = false;
  named = name;
  sift();
}

/** Show what belongs to the view, and say so. */
export function sift() {
  const only = all ? '' : named;
  let shown = 0;
  for (const entry of byId('feed').children) {
    const suits = !only || isOf(/** @type {HTMLElement} */ (entry).dataset.topic ?? '', only);
    /** @type {HTMLElement} */ (entry).hidden = !suits;
    shown += Number(suits);
  }
  byId('feed-of').hidden = !named;
  fill(byId('feed-only'), all ? `Events of all topics, not only of ${named}.` : `Only events of ${named}.`);
  fill(byId('feed-all'), all ? 'Show its own' : 'Show all');
  byId('feed-none').hidden = shown > 0;
  fill(byId('feed-none'), only ? `The newest 100 events have none of ${only}.` : 'Nothing has happened yet.');
}

/**
 * @param {string} topic of an event
 * @param {string} name
 */
function isOf(topic, name) {
  return topic === name || (name.endsWith('*') && topic.startsWith(name.slice(0, -1)));
}

/** @param {boolean} folded */
function fold(folded) {
  byId('feed-body').hidden = folded;
  byId('feed-fold').setAttribute('aria-expanded', String(!folded));
  fill(byId('feed-fold'), folded ? 'Show' : 'Hide');
}

/** Listen to the buttons, once. */
export function startPanel() {
  byId('feed-all').addEventListener('click', () => {
    all = !all;
    sift();
  });
  byId('feed-fold').addEventListener('click', () => fold(!byId('feed-body').hidden));
  NARROW.addEventListener('change', () => fold(NARROW.matches));
  fold(NARROW.matches);
}

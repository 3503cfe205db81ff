/** A small line of what was measured lately. Pure. */

import { number } from './format.js';

const WIDTH = 120;
const HEIGHT = 24;

/**
 * What came between two readings, in a second.
 *
 * @param {{at: number, ends: number}} before `at` in seconds
 * @param {{at: number, ends: number}} now
 */
export function rate(before, now) {
  return now.at > before.at ? (now.ends - before.ends) / (now.at - before.at) : 0;
}

/**
 * @param {number[]} values oldest first
 * @param {string} what they are, for those who cannot see the line
 * @returns {any} a part; null where there is no line yet
 */
export function sparkline(values, what) {
  if (values.length < 2) return null;
  const largest = Math.max(...values, 1e-9);
  const step = WIDTH / (values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(HEIGHT - 1 - (HEIGHT - 2) * (value / largest)).toFixed(1)}`);
  const said = `${what} since this page is open, at most ${number(Math.round(largest * 10) / 10)}`;
  return ['svg', { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': said }, ['polyline', { points: points.join(' ') }]];
}

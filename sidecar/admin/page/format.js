/** Numbers, sizes and times as people read them. Pure, but for the clock. */

const NUMBER = new Intl.NumberFormat('en');
const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const STEPS = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];
const UNITS = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];

/** @param {number | bigint | null | undefined} value */
export function number(value) {
  return value === null || value === undefined ? '–' : NUMBER.format(value);
}

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return '–';
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/**
 * The two largest units of a duration: `3 h 12 min`.
 *
 * @param {number} seconds
 */
export function duration(seconds) {
  let rest = Math.max(0, Math.floor(seconds));
  const found = [];
  for (const [length, unit] of STEPS) {
    const count = Math.floor(rest / Number(length));
    rest -= count * Number(length);
    if (count > 0 || (unit === 's' && found.length === 0)) found.push(`${count} ${unit}`);
    else if (found.length) break;
    if (found.length === 2) break;
  }
  return found.join(' ');
}

/**
 * How long ago, with the time itself as the title.
 *
 * @param {string | null | undefined} time RFC 3339
 * @returns {any} a part
 */
export function since(time) {
  if (!time) return '–';
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  const coarse = seconds < 60 ? seconds : seconds - (seconds % 60);
  return ['time', { datetime: time, title: time }, duration(coarse)];
}

/**
 * The time of day; with its day where that is another one.
 *
 * @param {string | number} time
 */
export function clock(time) {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  return today ? CLOCK.format(at) : `${DAY.format(at)} ${CLOCK.format(at)}`;
}

/**
 * A word that says how something is. `kind`: good, warn, bad or quiet.
 *
 * @param {string} kind
 * @param {string} text
 * @returns {any} a part
 */
export function tag(kind, text) {
  return ['span', { class: `tag ${kind}` }, text];
}

/**
 * A bar with its number: a lag, as a share of the largest.
 *
 * @param {number} value
 * @param {number} largest
 * @returns {any} a part
 */
export function bar(value, largest) {
  const share = largest > 0 ? Math.min(1, value / largest) : 0;
  return ['span', { class: 'bar' }, ['span', { class: 'fill', share, 'aria-hidden': 'true' }], ['span', { class: 'count' }, number(value)]];
}

/**
 * What the address says behind its #: a section, one thing in it, and what its list is filtered and sorted by, as in
 * `#/topics?contains=pay&sort=-Generation`. Whoever copies the address copies what is on the screen.
 */

/** @type {Map<string, string>} by section: the address of its list as it was seen last */
const seen = new Map();

/** @returns {{section: string, name: string, query: URLSearchParams}} */
export function address() {
  const [way, query = ''] = location.hash.replace(/^#\//, '').split('?');
  const [section, name = ''] = way.split('/');
  return { section, name: decoded(name), query: new URLSearchParams(query) };
}

/**
 * Say what the list on the screen is filtered and sorted by; what is empty is left out. Adds no step to the history.
 *
 * @param {string} section
 * @param {Record<string, string>} values
 */
export function keep(section, values) {
  const now = address();
  if (now.name || (now.section && now.section !== section)) return; // another view is on the screen by now
  const query = now.query;
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  history.replaceState(null, '', `#/${section}${text && `?${text}`}`);
  remember(section);
}

/**
 * The list on the screen is where its section is gone back to.
 *
 * @param {string} section
 */
export function remember(section) {
  seen.set(section, location.hash || `#/${section}`);
}

/**
 * The address of a section's list as it was left.
 *
 * @param {string} section
 */
export function listOf(section) {
  return seen.get(section) ?? `#/${section}`;
}

/** @param {string} name */
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // somebody typed a lone %
  }
}

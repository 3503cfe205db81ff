/**
 * Nodes out of plain lists, rebuilt only where what they say has changed, so that focus and selection survive a refresh.
 * Text becomes text nodes and nothing else: no name that a client chose is ever read as markup.
 *
 * @typedef {string | number | null | Element} Part text, nothing, or `[tag, attributes, ...parts]`
 */

const SAID = new WeakMap();
const DRAWN = new Set(['svg', 'polyline']);
const SVG = 'http:' + '//www.w3.org/2000/svg';

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * One node. An attribute that is false, null or undefined is left out; `share` (0 to 1) is the length of a bar.
 *
 * @param {Part} part
 * @returns {Node}
 */
export function build(part) {
  if (part === null || part === undefined) return document.createTextNode('');
  if (!Array.isArray(part)) return document.createTextNode(String(part));
  const [tag, attributes, ...children] = part;
  const node = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on') || name === 'style') throw new Error(`${name} is no attribute of this page`);
    if (name === 'share') /** @type {HTMLElement} */ (node).style.setProperty('--share', String(value));
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.map(build));
  return node;
}

/**
 * Let a node hold these parts. Where it does already, nothing is touched.
 *
 * @param {Element} node
 * @param {...Part} parts
 */
export function fill(node, ...parts) {
  const said = JSON.stringify(parts);
  if (SAID.get(node) === said) return;
  const place = node.contains(document.activeElement) ? focusable(node).indexOf(/** @type {HTMLElement} */ (document.activeElement)) : -1;
  const open = [...node.querySelectorAll('details')].map((each) => each.open);
  node.replaceChildren(...parts.map(build));
  node.querySelectorAll('details').forEach((each, index) => { each.open = open[index] ?? false; });
  SAID.set(node, said);
  if (place >= 0) focusable(node)[place]?.focus();
}

/**
 * One child for each item, in this order; a child stays the same node as long as its key does. Of items that share a key
 * the first keeps the first node, and so on.
 *
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => Element} make
 * @param {(node: Element, item: T) => void} update
 */
export function keyed(parent, items, key, make, update) {
  const before = new Map([...parent.children].map((node) => [/** @type {HTMLElement} */ (node).dataset.key, node]));
  const times = new Map();
  let next = parent.firstElementChild;
  for (const item of items) {
    const count = times.get(key(item)) ?? 0;
    times.set(key(item), count + 1);
    const name = `${count} ${key(item)}`;
    const node = before.get(name) ?? make(item);
    /** @type {HTMLElement} */ (node).dataset.key = name;
    before.delete(name);
    update(node, item);
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
  for (const gone of before.values()) gone.remove();
}

/**
 * @param {Element} node
 * @returns {HTMLElement[]}
 */
function focusable(node) {
  return [...node.querySelectorAll('a[href], button, input, summary, [tabindex]')].filter((each) => each instanceof HTMLElement);
}

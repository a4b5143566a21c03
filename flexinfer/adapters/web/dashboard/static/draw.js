// DOM building blocks. Text goes in as text nodes only: nothing from the bus is ever parsed as HTML.

const SVG = 'http://www.w3.org/2000/svg';
const LAZY_FROM = 60;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'style') node.style.cssText = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const known = (value) => value !== null && value !== undefined;
export const number = (value, digits = 0, unit = '') => (known(value) ? value.toFixed(digits) + unit : '–');
export const gib = (mib) => (known(mib) ? (mib / 1024).toFixed(mib < 10240 ? 1 : 0) + ' GiB' : '–');
export const clock = (at) => new Date(at * 1000).toISOString().slice(11, 19);
export const values = (map) => Object.values(map);
export const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);  // localeCompare costs ten times as much
export const signed = (value, digits = 1) => (value < 0 ? '−' : '+') + Math.abs(value).toFixed(digits);

export function child(panel, name, make) {
  let node = panel.querySelector(`:scope > .${name}`);
  if (!node) { node = make(); node.classList.add(name); panel.append(node); }
  return node;
}

export function empty(panel, show, text) {
  child(panel, 'empty', () => el('p', {}, text)).hidden = !show;
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function meter(label, share, text) {
  const width = known(share) && !Number.isNaN(share) ? Math.min(100, Math.max(0, share * 100)) : 0;
  return el('div', { class: 'meter' }, el('span', { 'aria-hidden': 'true' }, label),
    el('div', { class: 'track', role: 'img', 'aria-label': `${label} ${text}` }, el('div', { class: width > 90 ? 'fill hot' : 'fill', style: `width:${width}%` })),
    el('span', { 'aria-hidden': 'true' }, text));
}

// A list whose items are kept by key and drawn again only when their text changed. In long lists only what is near the
// viewport is drawn; the others keep their last look, or just their title.
let wake = () => {};
export const onScroll = (tell) => { wake = tell; };
const near = new WeakSet();
const eye = new IntersectionObserver((entries) => {
  for (const entry of entries) { if (entry.isIntersecting) near.add(entry.target); else near.delete(entry.target); }
  wake();
}, { rootMargin: '300px' });
const lists = new WeakMap();

export function list(parent, items, { tag = 'article', className = 'card' } = {}) {
  let held = lists.get(parent);
  if (!held) { held = new Map(); lists.set(parent, held); }
  const keys = new Set(items.map((item) => item.key));
  for (const [key, entry] of held) if (!keys.has(key)) { eye.unobserve(entry.node); entry.node.remove(); held.delete(key); }
  const lazy = items.length >= LAZY_FROM;
  let after = null;
  for (const item of items) {
    let entry = held.get(item.key);
    if (!entry) {
      entry = { node: el(tag, { class: className }, lazy && item.title ? el('h3', {}, item.title) : null), text: null };
      held.set(item.key, entry);
      eye.observe(entry.node);
    }
    if (!lazy || near.has(entry.node)) {
      const text = item.text();
      if (entry.text !== text) { entry.node.replaceChildren(...item.make().flat().filter(Boolean)); entry.text = text; }
    }
    const next = after ? after.nextSibling : parent.firstChild;
    if (next !== entry.node) parent.insertBefore(entry.node, next);
    after = entry.node;
  }
}

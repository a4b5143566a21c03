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
// viewport is drawn; the others keep their last look, or just their title. A long list of cards lies in blocks, so that
// the browser lays out the few blocks near the viewport and not all cards.
let wake = () => {};
export const onScroll = (tell) => { wake = tell; };
const near = new WeakSet();
const eye = new IntersectionObserver((entries) => {
  for (const entry of entries) { if (entry.isIntersecting) near.add(entry.target); else near.delete(entry.target); }
  wake();
}, { rootMargin: '300px' });
const lists = new WeakMap();

// Items that changed wait here: a frame draws for so many milliseconds, the rest is for the next ones.
const FRAME_BUDGET = 6;
const waiting = new Map();
let asked = false;

function work() {
  asked = false;
  const end = performance.now() + FRAME_BUDGET;
  for (const [entry, item] of waiting) {
    waiting.delete(entry);
    const text = item.text();
    if (entry.text !== text) { become(entry.node, item.make(entry.node).flat().filter(Boolean)); entry.text = text; entry.node.classList.remove('bare'); }
    if (performance.now() >= end) break;
  }
  if (waiting.size && !asked) { asked = true; requestAnimationFrame(work); }
}

// Makes the children of a node those given, keeping each that is of the same kind: what did not change is not laid out
// again, and what a person opened stays open.
function become(node, children) {
  let old = node.firstChild;
  for (const fresh of children) {
    if (!old) { node.append(fresh); continue; }
    const next = old.nextSibling;
    match(old, typeof fresh === 'string' ? document.createTextNode(fresh) : fresh);
    old = next;
  }
  while (old) { const next = old.nextSibling; old.remove(); old = next; }
}

function match(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
  if (old.nodeType === Node.TEXT_NODE) { old.data = fresh.data; return; }
  for (const name of fresh.getAttributeNames()) { const value = fresh.getAttribute(name); if (old.getAttribute(name) !== value) old.setAttribute(name, value); }
  for (const name of old.getAttributeNames()) if (name !== 'open' && !fresh.hasAttribute(name)) old.removeAttribute(name);
  become(old, [...fresh.childNodes]);
}

const BLOCK = 60;  // cards: with one to six columns, blocks join without a gap
const CARD_HEIGHT = 161, COLUMN_WIDTH = 311;

function blocks(held, parent, count) {
  const found = held.blocks;
  while (found.length < Math.ceil(count / BLOCK)) {
    const block = el('div', { class: 'grid block' });
    found.push(block);
    parent.append(block);
    eye.observe(block);
  }
  while (found.length > Math.ceil(count / BLOCK)) { const block = found.pop(); eye.unobserve(block); block.remove(); }
  const columns = Math.max(1, Math.floor(innerWidth / COLUMN_WIDTH));
  if (held.columns !== columns) {
    held.columns = columns;
    parent.style.setProperty('--block-height', `${Math.ceil(BLOCK / columns) * CARD_HEIGHT}px`);
  }
  return found;
}

function watch(entry, on) {
  if (entry.watched === on) return;
  entry.watched = on;
  if (on) eye.observe(entry.node); else { eye.unobserve(entry.node); near.delete(entry.node); }
}

function drop(entry) {
  watch(entry, false);
  waiting.delete(entry);
  entry.node.remove();
}

function enter(item, lazy, { tag, className }) {
  return { node: el(tag, { class: lazy && item.title ? `${className} bare` : className }, lazy && item.title ? el('h3', {}, item.title) : null), text: null, watched: false };
}

// Those that are gone, out of the list; their nodes, if others may have them. What a person opened is given to nobody.
function leave(entries, items, recycle) {
  const keys = new Set(items.map((item) => item.key)), free = [];
  for (const [key, entry] of entries) {
    if (keys.has(key)) continue;
    entries.delete(key);
    if (recycle && !entry.node.querySelector('[open]')) free.push(entry); else drop(entry);
  }
  return free;
}

function again(entry) {
  entry.text = null;
  if (!near.has(entry.node)) entry.node.replaceChildren();
  return entry;
}

// inBlocks: cards in blocks. recycle: for lists whose items come and go fast, new ones get the nodes of those that went.
export function list(parent, items, { tag = 'article', className = 'card', inBlocks = false, recycle = false } = {}) {
  let held = lists.get(parent);
  if (!held) { held = { entries: new Map(), blocks: [], columns: 0 }; lists.set(parent, held); }
  const { entries } = held, free = leave(entries, items, recycle);
  const lazy = items.length >= LAZY_FROM, places = inBlocks ? blocks(held, parent, items.length) : [parent];
  let after = null, used = 0;
  items.forEach((item, index) => {
    const place = inBlocks ? places[Math.floor(index / BLOCK)] : parent;
    let entry = entries.get(item.key);
    if (!entry) { entry = used < free.length ? again(free[used++]) : enter(item, lazy, { tag, className }); entries.set(item.key, entry); }
    const next = after?.parentNode === place ? after.nextSibling : place.firstChild;
    if (next !== entry.node) place.insertBefore(entry.node, next);
    after = entry.node;
    watch(entry, lazy && (!inBlocks || near.has(place)));
    if (!lazy || near.has(entry.node)) waiting.set(entry, item); else waiting.delete(entry);
  });
  free.slice(used).forEach(drop);
  work();
}

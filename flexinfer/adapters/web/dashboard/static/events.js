// The stream of events: newest first, filtered by words, each with its whole JSON.
import { clock, el, list, say } from './draw.js';

const SHOWN = 200, LINE = 240;
const texts = new WeakMap();

function textOf(record) {
  let text = texts.get(record);
  if (!text) { text = `${record.type} ${record.subject} ${record.source} ${JSON.stringify(record.data)}`; texts.set(record, text); }
  return text;
}

export function wanted(state) {
  const words = state.filter.split(/\s+/).filter((item) => item && item !== '-');
  if (!words.length) return state.events;
  return state.events.filter((record) => {
    const text = textOf(record).toLowerCase();
    return words.every((item) => (item.startsWith('-') ? !text.includes(item.slice(1)) : text.includes(item)));
  });
}

const rows = new WeakMap();

function row(node, record) {
  rows.set(node, record);
  return [el('details', {}, el('summary', {}, el('span', { class: 'dim' }, clock(record.at)), el('span', {}, record.type), el('span', {}, record.subject), el('span', { class: 'dim' }, JSON.stringify(record.data).slice(0, LINE))))];
}

// The whole JSON of an event, from when it is first opened.
export function unfold(event) {
  const details = event.target, record = rows.get(details.parentNode);
  if (details.open && record && !details.querySelector('pre')) details.append(el('pre', { tabindex: 0 }, JSON.stringify(record, null, 2)));
}

export function drawEvents(state, panel) {
  const found = wanted(state);
  const parts = [state.paused ? `paused, ${state.held} held back` : `${found.length} of the last ${state.events.length} match`];
  if (!state.filter && !state.paused) parts[0] = `the last ${Math.min(found.length, SHOWN)} of ${state.total}`;
  if (state.leftOut) parts.push(`${state.leftOut} left out, more than a page can show`);
  say(panel.querySelector('#held'), parts.join(' · '));
  list(panel.querySelector('#stream'), found.slice(-SHOWN).reverse().map((record) => ({ key: record.id, text: () => record.id, make: (node) => row(node, record) })), { tag: 'li', className: 'event', recycle: true });
}

export function save(state) {
  const lines = wanted(state).map((record) => JSON.stringify(record)).join('\n') + '\n';
  const link = el('a', { href: URL.createObjectURL(new Blob([lines], { type: 'application/jsonl' })), download: 'flexinfer-events.jsonl' });
  link.click();
  URL.revokeObjectURL(link.href);
}

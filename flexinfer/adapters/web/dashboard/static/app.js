// Keeps the state of the page, from one stream of server-sent events or from moments of a tape, and draws the open view.
import { drawBench } from './bench.js';
import { onScroll, say } from './draw.js';
import { drawEvents, save, unfold } from './events.js';
import { drawFleet } from './fleet.js';
import { drawModels } from './models.js';
import { drawPlacements } from './placements.js';
import { travel } from './travel.js';

const MAX_EVENTS = 500;
const KEPT = ['hardware', 'telemetry', 'status', 'phase', 'endpoint', 'load', 'result'];
const state = { decisions: [], events: [], phases: {}, runs: {}, notes: [], total: 0, leftOut: 0, now: 0, skew: 0, paused: false, filter: '', find: '', troubled: false, held: 0 };
for (const name of KEPT) state[name] = {};
state.clock = () => (tape ? state.now : Date.now() / 1000 - state.skew);

const views = { fleet: drawFleet, models: drawModels, bench: drawBench, placements: drawPlacements, events: drawEvents };
const $ = (id) => document.getElementById(id);
let open = 'fleet', last = 0, queued = false, tape = null, source = null, lost = false;

function draw() {
  queued = false;
  const began = performance.now();
  views[open](state, $(open));
  for (const [view, count] of [['fleet', Object.keys(state.hardware).length], ['models', Object.keys(state.phase).length], ['bench', Object.keys(state.result).length], ['placements', state.decisions.length], ['events', state.total]]) say($(`n-${view}`), count ? `${count}` : '');
  document.documentElement.dataset.draw = (performance.now() - began).toFixed(1);
}

// One frame per change at most, whatever the rate of events.
function redraw() {
  if (!queued) { queued = true; requestAnimationFrame(draw); }
}

function note(message) {
  Object.assign(state, { now: message.now, skew: Date.now() / 1000 - message.now, total: message.total, notes: message.notes });
  last = performance.now();
  pulse();
  redraw();
}

function onSnapshot(message) {
  for (const name of KEPT) state[name] = message[name];
  Object.assign(state, { decisions: message.decisions, phases: message.phases, runs: message.runs });
  if (!state.paused) state.events = message.events;
  note(message);
}

function onBatch(message) {
  for (const name of KEPT) {
    for (const [key, value] of Object.entries(message[name] ?? {})) {
      if (value === null) delete state[name][key]; else state[name][key] = value;
    }
  }
  state.decisions = [...state.decisions, ...message.decisions].slice(-100);
  Object.assign(state.phases, message.phases);
  Object.assign(state.runs, message.runs);
  if (message.phase) {
    const models = new Set(Object.values(state.phase).map((record) => record.subject));
    for (const model of Object.keys(state.phases)) if (!models.has(model)) delete state.phases[model];
  }
  takeEvents(message.events.map((item) => (item.ref ? state[item.ref[0]][item.ref[1]] : item)), message.leftOut);
  note(message);
}

function takeEvents(events, leftOut) {
  if (state.paused) { state.held += events.length + leftOut; return; }
  state.leftOut += leftOut;
  state.events = [...state.events, ...events].slice(-MAX_EVENTS);
}

function onMoment(message) {
  lost = message === null;
  if (message) onSnapshot(message); else pulse();
}

function pulse() {
  const quiet = (performance.now() - last) / 1000;
  const live = tape ? !lost : source?.readyState === EventSource.OPEN && quiet < 5;
  const mood = tape ? 'tape' : live ? 'live' : 'dead';
  if ($('dot').className !== mood) $('dot').className = mood;
  say($('pulse-text'), tape ? `tape of ${tape.title}` : live ? 'live' : last ? 'no news' : 'connecting');
  const notes = [...state.notes, ...(tape?.notes.map((text) => `Not read: ${text}.`) ?? [])];
  if (last && !live) notes.push('The dashboard server does not answer: what you see is the last known state.');
  $('banner').hidden = notes.length === 0;
  say($('banner'), notes.join(' '));
}

function select(view, focus) {
  open = view in views ? view : 'fleet';
  for (const tab of tabs) {
    const on = tab.dataset.view === open;
    tab.setAttribute('aria-selected', on);
    tab.tabIndex = on ? 0 : -1;
    $(tab.dataset.view).hidden = !on;
    if (on && focus) tab.focus();
  }
  if (location.hash !== `#${open}`) history.replaceState(null, '', `#${open}`);
  redraw();
}

const tabs = [...document.querySelectorAll('[role=tab]')];
tabs.forEach((tab, index) => {
  tab.addEventListener('click', () => select(tab.dataset.view));
  tab.addEventListener('keydown', (event) => {
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); select(tabs[to % tabs.length].dataset.view, true); }
  });
});
window.addEventListener('hashchange', () => { if (location.hash.slice(1) in views) select(location.hash.slice(1)); });
$('skip').addEventListener('click', (event) => { event.preventDefault(); $(open).focus(); });

$('filter').addEventListener('input', (event) => { state.filter = event.target.value.toLowerCase(); redraw(); });
$('find').addEventListener('input', (event) => { state.find = event.target.value.toLowerCase(); redraw(); });
$('troubled').addEventListener('change', (event) => { state.troubled = event.target.checked; redraw(); });
for (const id of ['filters', 'fleet-bar']) $(id).addEventListener('submit', (event) => event.preventDefault());
$('pause').addEventListener('click', () => {
  state.paused = !state.paused;
  state.held = 0;
  $('pause').setAttribute('aria-pressed', state.paused);
  $('pause').textContent = state.paused ? 'Resume' : 'Pause';
  redraw();
});
$('stream').addEventListener('toggle', unfold, true);  // it does not bubble
$('save').addEventListener('click', () => save(state));
$('theme').addEventListener('click', () => {
  const root = document.documentElement.dataset;
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  root.theme = (root.theme || (dark ? 'dark' : 'light')) === 'dark' ? 'light' : 'dark';
});
onScroll(redraw);

async function begin() {
  select(location.hash.slice(1) || 'fleet');
  const answer = await fetch('api/tape');
  tape = answer.ok ? await answer.json() : null;
  if (tape) { document.body.classList.add('on-tape'); $('pause').hidden = true; travel(tape, onMoment); return; }
  source = new EventSource('stream');
  source.addEventListener('snapshot', (event) => onSnapshot(JSON.parse(event.data)));
  source.addEventListener('batch', (event) => onBatch(JSON.parse(event.data)));
  source.addEventListener('error', pulse);
  setInterval(() => { pulse(); redraw(); }, 1000);
}
begin().catch(pulse);

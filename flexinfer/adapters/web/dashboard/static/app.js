// Keeps the state of the page from one stream of server-sent events and draws the view that is open.
import { drawBench, drawEvents, drawFleet, drawModels, drawPlacements } from './views.js';

const MAX_EVENTS = 500;
const KEPT = ['hardware', 'telemetry', 'status', 'phase', 'endpoint', 'load', 'result'];
const state = { decisions: [], events: [], phases: {}, runs: {}, notes: [], total: 0, now: 0, skew: 0, paused: false, filter: '', held: 0 };
for (const name of KEPT) state[name] = {};

const views = { fleet: drawFleet, models: drawModels, bench: drawBench, placements: drawPlacements, events: drawEvents };
const $ = (id) => document.getElementById(id);
let open = 'fleet';
let last = 0;
let queued = false;

function draw() {
  queued = false;
  views[open](state, $(open));
  $('n-fleet').textContent = Object.keys(state.hardware).length || '';
  $('n-models').textContent = Object.keys(state.phase).length || '';
  $('n-bench').textContent = Object.keys(state.result).length || '';
  $('n-placements').textContent = state.decisions.length || '';
  $('n-events').textContent = state.total || '';
}

// One frame per change at most, whatever the rate of events.
function redraw() {
  if (!queued) { queued = true; requestAnimationFrame(draw); }
}

function takeEvents(events) {
  if (state.paused) { state.held += events.length; return; }
  state.events.push(...events);
  if (state.events.length > MAX_EVENTS) state.events.splice(0, state.events.length - MAX_EVENTS);
}

function note(message) {
  state.now = message.now;
  state.skew = Date.now() / 1000 - message.now;
  state.total = message.total;
  state.notes = message.notes;
  last = performance.now();
  pulse();
}

function onSnapshot(message) {
  for (const name of KEPT) state[name] = message[name];
  Object.assign(state, { decisions: message.decisions, phases: message.phases, runs: message.runs });
  if (!state.paused) state.events = message.events;
  note(message);
  redraw();
}

function onBatch(message) {
  for (const name of KEPT) {
    for (const [key, value] of Object.entries(message[name] || {})) {
      if (value === null) delete state[name][key]; else state[name][key] = value;
    }
  }
  state.decisions = [...state.decisions, ...message.decisions].slice(-100);
  Object.assign(state.phases, message.phases);
  for (const model of Object.keys(state.phases)) {
    const [namespace, name] = model.split('/');
    if (!Object.values(state.phase).some((r) => r.data.namespace === namespace && r.data.model === name)) delete state.phases[model];
  }
  Object.assign(state.runs, message.runs);
  takeEvents(message.events);
  note(message);
  redraw();
}

function pulse() {
  const quiet = (performance.now() - last) / 1000;
  const live = source.readyState === EventSource.OPEN && quiet < 5;
  $('dot').className = live ? 'live' : 'dead';
  $('pulse-text').textContent = live ? 'live' : last ? `no news for ${Math.round(quiet)} s` : 'connecting';
  const notes = [...state.notes];
  if (last && !live) notes.push('The dashboard server does not answer: what you see is the last known state.');
  $('banner').hidden = notes.length === 0;
  $('banner').textContent = notes.join(' ');
}

function select(view, focus) {
  open = view in views ? view : 'fleet';
  for (const tab of document.querySelectorAll('[role=tab]')) {
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
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) select(tabs[(index + step + tabs.length) % tabs.length].dataset.view, true);
  });
});
window.addEventListener('hashchange', () => select(location.hash.slice(1)));

$('filter').addEventListener('input', (event) => { state.filter = event.target.value.toLowerCase(); redraw(); });
$('filters').addEventListener('submit', (event) => event.preventDefault());
$('pause').addEventListener('click', () => {
  state.paused = !state.paused;
  if (!state.paused) state.held = 0;
  $('pause').setAttribute('aria-pressed', state.paused);
  $('pause').textContent = state.paused ? 'Resume' : 'Pause';
  redraw();
});
$('theme').addEventListener('click', () => {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const now = document.documentElement.dataset.theme || (dark ? 'dark' : 'light');
  document.documentElement.dataset.theme = now === 'dark' ? 'light' : 'dark';
});

const source = new EventSource('stream' + location.search);
source.addEventListener('snapshot', (event) => onSnapshot(JSON.parse(event.data)));
source.addEventListener('batch', (event) => onBatch(JSON.parse(event.data)));
source.addEventListener('error', pulse);
setInterval(() => { pulse(); redraw(); }, 1000);
select(location.hash.slice(1) || 'fleet');

// Draws each view from the state. Text goes in as text nodes only: nothing from the bus is ever parsed as HTML.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'style') node.style.cssText = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const number = (value, digits = 0, unit = '') => (value === null || value === undefined ? '–' : value.toFixed(digits) + unit);
const gib = (mib) => (mib === null || mib === undefined ? '–' : (mib / 1024).toFixed(mib < 10240 ? 1 : 0) + ' GiB');
const ageOf = (state, record) => Math.max(0, Date.now() / 1000 - state.skew - record.at);
const clock = (at) => new Date(at * 1000).toISOString().slice(11, 19);
const values = (map) => Object.values(map);
const nodeOf = (records) => Object.fromEntries(values(records).map((record) => [record.data.node, record]));

// Cards are kept by key and replaced only when their content changed, so that a large fleet stays smooth.
const drawn = new WeakMap();
function replaceKeyed(parent, entries) {
  let known = drawn.get(parent);
  if (!known) { known = new Map(); drawn.set(parent, known); parent.replaceChildren(); }
  const keys = new Set(entries.map(([key]) => key));
  for (const [key, item] of known) if (!keys.has(key)) { item.node.remove(); known.delete(key); }
  let after = null;
  for (const [key, text, make] of entries) {
    const item = known.get(key);
    let node = item?.node;
    if (!item || item.text !== text) {
      const fresh = make();
      if (node) node.replaceWith(fresh);
      node = fresh;
      known.set(key, { text, node });
    }
    const next = after ? after.nextSibling : parent.firstChild;
    if (next !== node) parent.insertBefore(node, next);
    after = node;
  }
}

function child(panel, name, make) {
  let node = panel.querySelector(`:scope > .${name}`);
  if (!node) { node = make(); node.classList.add(name); panel.append(node); }
  return node;
}

function empty(panel, show, text) {
  const node = child(panel, 'empty', () => el('p', {}, text));
  node.hidden = !show;
}

function meter(label, share, text) {
  const width = share === null || Number.isNaN(share) ? 0 : Math.min(100, Math.max(0, share * 100));
  return el('div', { class: 'meter' }, el('span', {}, label),
    el('div', { class: 'track', role: 'img', 'aria-label': `${label} ${text}` }, el('div', { class: `fill ${width > 90 ? 'hot' : ''}`, style: `width:${width}%` })),
    el('span', {}, text));
}

function device(found, live) {
  const total = found.memoryMib, free = live ? live.memoryFreeMib : null;
  const used = total && free !== null && free !== undefined ? (total - free) / total : null;
  const warm = live && live.temperatureCelsius !== null ? `${Math.round(live.temperatureCelsius)} °C` : '';
  const power = live && live.powerWatts !== null ? ` ${Math.round(live.powerWatts)} W` : '';
  return el('div', { class: 'device' },
    el('div', { class: 'row' }, el('span', {}, `${found.product || found.vendor} `, el('span', { class: 'dim small' }, found.arch || '')),
      el('span', { class: 'small dim num' }, warm + power)),
    found.health.state !== 'ok' && el('div', { class: 'small' }, el('span', { class: 'tag bad' }, found.health.state), ` ${found.health.reasons.join(', ')}`),
    meter('memory', used, used === null ? gib(total) : `${gib(total - free)} / ${gib(total)}`),
    meter('load', live && live.utilPercent !== null ? live.utilPercent / 100 : null, number(live ? live.utilPercent : null, 0, ' %')));
}

function nodeCard(hardware, telemetry, status, age, stale) {
  const { data } = hardware;
  const live = telemetry ? telemetry.data : null;
  const byId = Object.fromEntries((live ? live.devices : []).map((item) => [item.uuid, item]));
  const mood = status === 'online' ? (stale ? 'warn' : 'good') : 'bad';
  const free = live ? live.memoryFreeMib : null, total = data.cpu.memoryMib;
  return el('article', { class: 'card' },
    el('header', {}, el('h3', {}, data.node), el('span', {}, data.virtual && el('span', { class: 'tag' }, 'virtual'), ' ', el('span', { class: `tag ${mood}` }, stale && status === 'online' ? 'stale' : status))),
    el('div', { class: 'small dim' }, `${data.cpu.model || 'CPU'} · ${data.cpu.threads ?? '?'} threads${data.cpu.avx512 ? ' · AVX-512' : ''} · heard ${age}`),
    meter('memory', total && free !== null ? (total - free) / total : null, free === null ? gib(total) : `${gib(total - free)} / ${gib(total)}`),
    meter('cpu', live && live.cpuUtilPercent !== null ? live.cpuUtilPercent / 100 : null, number(live ? live.cpuUtilPercent : null, 0, ' %')),
    live && live.kvCacheRatio ? meter('KV', live.kvCacheRatio, number(live.kvCacheRatio * 100, 1, ' %')) : null,
    ...data.devices.map((item) => device(item, byId[item.uuid])));
}

export function drawFleet(state, panel) {
  const telemetry = nodeOf(state.telemetry), status = nodeOf(state.status);
  const nodes = values(state.hardware).sort((a, b) => a.data.node.localeCompare(b.data.node));
  empty(panel, nodes.length === 0, 'No node has reported yet. Agents publish their hardware when they start.');
  replaceKeyed(child(panel, 'grid', () => el('div')), nodes.map((hardware) => {
    const name = hardware.data.node, live = telemetry[name];
    const seconds = live ? ageOf(state, live) : null;
    const stale = !live || seconds > live.data.intervalSeconds * 3 + 1;
    const age = seconds === null ? 'never' : seconds < 10 ? 'just now' : `${Math.round(seconds)} s ago`;
    const mood = status[name] ? status[name].data.state : 'unknown';
    return [name, `${hardware.id}|${live ? live.id : ''}|${mood}|${age}`, () => nodeCard(hardware, live, mood, age, stale)];
  }));
}

function modelCard(record, endpoint, load, history) {
  const { data } = record;
  const mood = { Running: 'good', Failed: 'bad', Idle: '' }[data.phase] ?? 'warn';
  const rows = endpoint ? endpoint.data.endpoints : [];
  return el('article', { class: 'card' },
    el('header', {}, el('h3', {}, `${data.namespace}/${data.model}`), el('span', { class: `tag ${mood}` }, data.phase)),
    el('div', { class: 'small' }, data.message),
    el('div', { class: 'small dim num' }, `${data.readyReplicas}/${data.replicas} ready · ${load.outstanding} outstanding · ${number(load.tokens, 1)} tokens/s`),
    ...rows.map((row) => el('div', { class: 'small' }, `${row.node || row.pod} `, el('span', { class: 'dim' }, `${row.deviceClass || ''} ${row.tokensPerSecond ? row.tokensPerSecond.toFixed(1) + ' tokens/s' : ''} ${row.state}`))),
    el('ol', { class: 'steps', 'aria-label': 'phases' }, ...(history || []).map((item) => el('li', { title: item.data.message }, `${item.data.phase} `, el('span', { class: 'dim' }, clock(item.at))))));
}

export function drawModels(state, panel) {
  const models = values(state.phase).sort((a, b) => a.subject.localeCompare(b.subject));
  const endpoints = Object.fromEntries(values(state.endpoint).map((record) => [record.subject, record]));
  empty(panel, models.length === 0, 'No model yet. Apply a Model or ModelDeployment.');
  replaceKeyed(child(panel, 'grid', () => el('div')), models.map((record) => {
    const load = { outstanding: 0, tokens: 0 };
    for (const item of values(state.load)) if (item.subject === record.subject) { load.outstanding += item.data.outstanding; load.tokens += item.data.tokensPerSecond; }
    const history = state.phases[record.subject], endpoint = endpoints[record.subject];
    return [record.subject, JSON.stringify([record.id, endpoint?.id, load, history?.length]), () => modelCard(record, endpoint, load, history)];
  }));
}

function curve(points) {
  if (points.length < 2) return null;
  const width = 180, height = 56, top = Math.max(...points.map((p) => p.tokensPerSecond));
  const most = Math.max(...points.map((p) => p.concurrency));
  const at = (p) => `${8 + (p.concurrency / most) * (width - 16)},${height - 12 - (p.tokensPerSecond / top) * (height - 24)}`;
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('width', width);
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', points.map((p) => `${p.tokensPerSecond.toFixed(0)} tokens/s at ${p.concurrency} streams`).join(', '));
  const line = document.createElementNS(ns, 'polyline');
  line.setAttribute('points', points.map(at).join(' '));
  line.setAttribute('fill', 'none');
  line.setAttribute('stroke', 'var(--accent)');
  line.setAttribute('stroke-width', '2');
  svg.append(line);
  for (const p of points) {
    const text = document.createElementNS(ns, 'text');
    const [x, y] = at(p).split(',');
    text.setAttribute('x', x); text.setAttribute('y', Number(y) - 4); text.setAttribute('text-anchor', 'middle');
    text.textContent = p.tokensPerSecond.toFixed(0);
    svg.append(text);
  }
  return svg;
}

function matrix(results) {
  const classes = [...new Set(results.map((r) => r.data.deviceClass))].sort();
  const workloads = [...new Set(results.map((r) => r.data.workload))].sort();
  const best = Object.fromEntries(workloads.map((w) => [w, Math.max(...results.filter((r) => r.data.workload === w).map((r) => r.data.tokensPerSecond))]));
  return el('div', { class: 'scroll' }, el('table', {}, el('caption', { class: 'dim small' }, 'tokens/s at one stream, median; ± is the spread'),
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'workload'), ...classes.map((name) => el('th', { scope: 'col', class: 'num' }, name)))),
    el('tbody', {}, ...workloads.map((w) => el('tr', {}, el('th', { scope: 'row' }, w), ...classes.map((c) => {
      const found = results.find((r) => r.data.workload === w && r.data.deviceClass === c);
      if (!found) return el('td', { class: 'num dim' }, '–');
      const data = found.data;
      return el('td', { class: `num ${data.tokensPerSecond === best[w] ? 'best' : ''}` }, data.tokensPerSecond.toFixed(1),
        data.spreadPercent === null ? '' : el('div', { class: 'small dim' }, `± ${(data.spreadPercent / 2).toFixed(1)} %`),
        data.costPerMillionTokens === null ? '' : el('div', { class: 'small dim' }, `${data.costPerMillionTokens.toFixed(2)} per million`),
        data.virtual ? el('div', { class: 'small dim' }, 'virtual') : '', curve(data.curve) ?? '');
    }))))));
}

function runRow(key, run) {
  const last = run.samples[run.samples.length - 1];
  const ended = run.ended ? (run.ended.type.startsWith('bench.failed') ? `failed: ${run.ended.data.message}` : `done, ${run.ended.data.tokensPerSecond.toFixed(1)} tokens/s`) : 'running';
  const measured = run.samples.filter((sample) => !sample.warmup);
  return el('tr', {}, el('th', { scope: 'row' }, key), el('td', {}, run.started.data.deviceClass), el('td', { class: 'num' }, `${measured.length}`),
    el('td', { class: 'num' }, last ? last.tokensPerSecond.toFixed(1) : '–'), el('td', {}, ended));
}

export function drawBench(state, panel) {
  const results = values(state.result), runs = Object.entries(state.runs);
  empty(panel, results.length + runs.length === 0, 'Nothing measured yet.');
  const body = child(panel, 'body', () => el('div'));
  const parts = [];
  if (results.length) parts.push(['matrix', results.map((r) => r.id).join(), () => el('div', {}, el('h2', {}, 'Measured'), matrix(results))]);
  if (runs.length) {
    parts.push(['runs', JSON.stringify(runs.map(([k, r]) => [k, r.samples.length, Boolean(r.ended)])), () => el('div', {}, el('h2', {}, 'Runs seen'),
      el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, ...['key', 'device class', 'samples', 'last tokens/s', 'state'].map((t, i) => el('th', { scope: 'col', class: i === 2 || i === 3 ? 'num' : '' }, t)))),
        el('tbody', {}, ...runs.reverse().map(([k, r]) => runRow(k, r)))))) ]);
  }
  replaceKeyed(body, parts);
}

const COLOURS = ['var(--t1)', 'var(--t2)', 'var(--t3)', 'var(--t4)', 'var(--t5)', 'var(--t6)'];

function placementCard(record) {
  const { data } = record;
  const names = data.candidates.length ? data.candidates[0].terms.map((term) => term.name) : [];
  const colour = (name) => COLOURS[names.indexOf(name) % COLOURS.length];
  const top = Math.max(1, ...data.candidates.map((c) => c.terms.reduce((sum, term) => sum + Math.abs(term.contribution), 0)));
  const mood = data.outcome === 'rejected' || data.outcome === 'error' ? 'bad' : 'good';
  return el('article', { class: 'card' },
    el('header', {}, el('h3', {}, `${data.namespace}/${data.pod}`), el('span', {}, data.degraded && el('span', { class: 'tag warn' }, 'degraded'), ' ', el('span', { class: `tag ${mood}` }, data.outcome))),
    el('div', { class: 'small dim' }, `${clock(record.at)} UTC · ${data.considered} node(s) considered${data.model ? ` · ${data.model}` : ''}`),
    ...data.candidates.slice(0, 5).map((candidate, index) => el('div', { class: 'candidate' },
      el('span', { class: index === 0 ? 'best' : '' }, candidate.node),
      el('div', { class: 'stack', role: 'img', 'aria-label': candidate.terms.map((t) => `${t.name} ${t.contribution.toFixed(1)}`).join(', ') },
        ...candidate.terms.map((term) => el('div', { title: `${term.name} ${term.contribution >= 0 ? '+' : ''}${term.contribution.toFixed(2)} ${term.note}`,
          style: `width:${(Math.abs(term.contribution) / top) * 100}%;background:${colour(term.name)};opacity:${term.contribution < 0 ? 0.45 : 1}` }))),
      el('span', { class: 'num' }, `${candidate.sum.toFixed(1)} → ${candidate.score}/10`))),
    names.length ? el('div', { class: 'legend' }, ...names.map((name) => el('span', {}, el('i', { style: `background:${colour(name)}` }), name)), el('span', {}, 'faint: subtracted')) : null,
    ...Object.entries(data.reasons).map(([reason, count]) => el('div', { class: 'small' }, `${count} × ${reason}`)),
    data.message ? el('div', { class: 'small' }, data.message) : null);
}

export function drawPlacements(state, panel) {
  const decisions = [...state.decisions].reverse();
  empty(panel, decisions.length === 0, 'No pod was placed yet.');
  replaceKeyed(child(panel, 'grid', () => el('div', { style: 'grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr))' })), decisions.map((record) => [record.id, record.id, () => placementCard(record)]));
}

function eventRow(record) {
  const text = JSON.stringify(record.data);
  return el('li', {}, el('details', {}, el('summary', {}, el('span', { class: 'dim' }, `${clock(record.at)}`), el('span', {}, record.type), el('span', {}, record.subject), el('span', { class: 'dim' }, text)),
    el('pre', {}, JSON.stringify(record, null, 2))));
}

export function drawEvents(state, panel) {
  const wanted = state.events.filter((record) => !state.filter || `${record.type} ${record.subject} ${JSON.stringify(record.data)}`.toLowerCase().includes(state.filter));
  panel.querySelector('#held').textContent = state.paused ? `paused, ${state.held} held back` : `${wanted.length} shown`;
  replaceKeyed(panel.querySelector('#stream'), wanted.slice(-200).reverse().map((record) => [record.id, record.id, () => eventRow(record)]));
}

// Every node with its devices: memory, load, temperature, health, age.
import { child, el, empty, gib, known, list, meter, number, say } from './draw.js';

function byNode(records) {
  const found = new Map();
  for (const key in records) found.set(records[key].data.node, records[key]);
  return found;
}

const HOT = 85;

function device(found, live) {
  const total = found.memoryMib, free = live?.memoryFreeMib;
  const used = total && known(free) ? (total - free) / total : null;
  const heat = known(live?.temperatureCelsius) ? `${Math.round(live.temperatureCelsius)} °C` : '';
  const power = known(live?.powerWatts) ? `${Math.round(live.powerWatts)} W` : '';
  const ok = found.health.state === 'ok';
  const slowed = live?.throttle?.length ? live.throttle.join(', ') : '';
  return el('div', { class: 'device' },
    el('div', { class: 'row' },
      el('span', {}, `${found.product || found.vendor} `, el('span', { class: 'dim small' }, [found.arch, found.partition?.profile].filter(Boolean).join(' '))),
      el('span', { class: 'small num' }, heat && el('span', { class: live.temperatureCelsius >= HOT ? 'bad' : 'dim' }, heat), ' ', el('span', { class: 'dim' }, power), ' ', el('span', { class: ok ? 'tag good' : 'tag bad' }, found.health.state))),
    !ok && found.health.reasons.length > 0 && el('div', { class: 'small bad' }, found.health.reasons.join(', ')),
    slowed && el('div', { class: 'small warn' }, `throttled: ${slowed}`),
    meter('memory', used, known(used) ? `${gib(total - free)} / ${gib(total)}` : `? / ${gib(total)}`),
    meter('load', known(live?.utilPercent) ? live.utilPercent / 100 : null, number(live?.utilPercent, 0, ' %')));
}

function nodeBody(node) {
  const { data } = node.hardware, live = node.live?.data;
  const figures = Object.fromEntries((live?.devices ?? []).map((item) => [item.uuid, item]));
  const free = live?.memoryFreeMib, total = data.cpu.memoryMib;
  return [
    el('header', {}, el('h3', {}, data.node), el('span', {}, data.virtual && el('span', { class: 'tag' }, 'virtual'), ' ', el('span', { class: `tag ${node.mood}` }, node.word))),
    el('div', { class: 'small dim' }, `${data.cpu.model || 'CPU'} · ${data.cpu.threads ?? '?'} threads${data.cpu.avx512 ? ' · AVX-512' : ''}`),
    el('div', { class: node.stale ? 'small warn' : 'small dim' }, `heard ${node.age}`),
    data.health.state !== 'ok' && el('div', { class: 'small bad' }, `${data.health.state}: ${data.health.reasons.join(', ')}`),
    live?.errors?.length > 0 && el('div', { class: 'small warn' }, live.errors.join('; ')),
    meter('memory', total && known(free) ? (total - free) / total : null, known(free) ? `${gib(total - free)} / ${gib(total)}` : `? / ${gib(total)}`),
    meter('cpu', known(live?.cpuUtilPercent) ? live.cpuUtilPercent / 100 : null, number(live?.cpuUtilPercent, 0, ' %')),
    known(live?.kvCacheRatio) && meter('KV', live.kvCacheRatio, number(live.kvCacheRatio * 100, 1, ' %')),
    ...data.devices.map((item) => device(item, figures[item.uuid])),
  ];
}

function nodeOf(state, hardware, live, status) {
  const seconds = live ? Math.max(0, state.clock() - live.heard) : null;
  const stale = !live || seconds > live.data.intervalSeconds * 3 + 1;
  const told = status ? status.data.state : 'unknown';
  const word = stale && told === 'online' ? 'stale' : told;
  const sick = hardware.data.devices.some((item) => item.health.state !== 'ok') || hardware.data.health.state !== 'ok';
  return {
    hardware, live, stale, word, age: seconds === null ? 'never' : seconds < 10 ? 'just now' : `${Math.round(seconds)} s ago`,
    mood: told !== 'online' ? 'bad' : stale ? 'warn' : 'good', troubled: sick || word !== 'online' || Boolean(live?.data.errors?.length),
  };
}

function sum(nodes) {
  let devices = 0, all = 0, free = 0, troubled = 0;
  for (const node of nodes) {
    for (const item of node.hardware.data.devices) { devices += 1; all += item.memoryMib ?? 0; }
    for (const item of node.live?.data.devices ?? []) free += item.memoryFreeMib ?? 0;
    if (node.troubled) troubled += 1;
  }
  const parts = [`${nodes.length} nodes`, `${devices} devices`];
  if (all) parts.push(`${gib(free)} of ${gib(all)} free`);
  if (troubled) parts.push(`${troubled} with problems`);
  return parts.join(' · ');
}

export function drawFleet(state, panel) {
  const live = byNode(state.telemetry), status = byNode(state.status);
  const nodes = Object.keys(state.hardware).sort().map((key) => { const record = state.hardware[key]; return nodeOf(state, record, live.get(record.data.node), status.get(record.data.node)); });
  empty(panel, nodes.length === 0, 'No node has reported yet. Agents publish their hardware when they start.');
  say(panel.querySelector('#fleet-sum'), nodes.length ? sum(nodes) : '');
  const shown = nodes.filter((node) => (!state.troubled || node.troubled) && (!state.find || JSON.stringify(node.hardware.data).toLowerCase().includes(state.find)));
  list(child(panel, 'cards', () => el('div')), shown.map((node) => ({
    key: node.hardware.data.node, title: node.hardware.data.node,
    text: () => `${node.hardware.id}|${node.live?.id}|${node.word}|${node.age}`, make: () => nodeBody(node),
  })), { inBlocks: true });
}

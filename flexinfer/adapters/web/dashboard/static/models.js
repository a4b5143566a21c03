// Every model: phase, replicas, where it is served, and how it came here.
import { child, clock, el, empty, list, number, order, values } from './draw.js';

const MOODS = { Running: 'good', Failed: 'bad', Idle: '' };

function modelBody(record, endpoint, load, history) {
  const { data } = record;
  const rows = endpoint ? endpoint.data.endpoints : [];
  return [
    el('header', {}, el('h3', {}, `${data.namespace}/${data.model}`), el('span', { class: `tag ${MOODS[data.phase] ?? 'warn'}` }, data.phase)),
    el('div', { class: 'small' }, data.message),
    el('div', { class: 'small dim num' }, `${data.readyReplicas}/${data.replicas} ready · ${load.outstanding} outstanding · ${number(load.tokens, 1)} tokens/s`),
    rows.length > 0 && el('ul', { class: 'plain' }, ...rows.map((row) => el('li', { class: 'small' }, `${row.node || row.pod} `, el('span', { class: 'dim' }, [row.deviceClass, row.tokensPerSecond && `${row.tokensPerSecond.toFixed(1)} tokens/s`, row.state].filter(Boolean).join(' · '))))),
    history?.length > 0 && el('ol', { class: 'steps', 'aria-label': 'phases' }, ...history.map((step, index) => {
      const next = history[index + 1];
      const spent = next ? `, ${Math.max(0, next.at - step.at).toFixed(0)} s` : '';
      return el('li', { title: `${step.reason}: ${step.message}` }, `${step.phase} `, el('span', { class: 'dim' }, clock(step.at) + spent));
    })),
    data.conditions.length > 0 && el('details', { class: 'small' }, el('summary', {}, 'conditions'), el('ul', { class: 'plain' }, ...data.conditions.map((item) => el('li', {}, `${item.type} ${item.status}: ${item.reason}${item.message ? ' – ' + item.message : ''}`)))),
  ];
}

export function drawModels(state, panel) {
  const models = values(state.phase).sort((a, b) => order(a.subject, b.subject));
  const endpoints = Object.fromEntries(values(state.endpoint).map((record) => [record.subject, record]));
  const loads = {};
  for (const { subject, data } of values(state.load)) {
    const load = loads[subject] ??= { outstanding: 0, tokens: 0 };
    load.outstanding += data.outstanding;
    load.tokens += data.tokensPerSecond;
  }
  empty(panel, models.length === 0, 'No model yet. Apply a Model or ModelDeployment.');
  list(child(panel, 'cards', () => el('div')), models.map((record) => {
    const load = loads[record.subject] ?? { outstanding: 0, tokens: 0 };
    const history = state.phases[record.subject], endpoint = endpoints[record.subject];
    return {
      key: record.subject, title: record.subject,
      text: () => JSON.stringify([record.id, endpoint?.id, load, history?.length]), make: () => modelBody(record, endpoint, load, history),
    };
  }), { inBlocks: true });
}

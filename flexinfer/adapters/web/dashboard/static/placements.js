// Each decision: its terms as stacked bars around zero, and how far the best is ahead of the runner-up.
import { child, clock, el, empty, list, signed } from './draw.js';

const COLOURS = { tps: 'var(--t1)', util: 'var(--t2)', cost: 'var(--t3)', kvCache: 'var(--t4)', vramFree: 'var(--t5)' };
const OTHER = 'var(--t6)';
const WORDS = { tps: 'speed', util: 'load', cost: 'cost', kvCache: 'KV cache', vramFree: 'free memory' };
const SHOWN = 5;

const colour = (name) => COLOURS[name] ?? OTHER;
const word = (name) => WORDS[name] ?? name;
const part = (candidate, sign) => candidate.terms.filter((term) => Math.sign(term.contribution) === sign);
const size = (terms) => terms.reduce((sum, term) => sum + Math.abs(term.contribution), 0);

function bar(candidate, below, above) {
  const block = (term, whole) => el('div', { title: `${word(term.name)} ${signed(term.contribution, 2)} ${term.note}`, style: `width:${(Math.abs(term.contribution) / whole) * 100}%;background:${colour(term.name)}` });
  const told = candidate.terms.map((term) => `${word(term.name)} ${signed(term.contribution)}`).join(', ');
  const share = (below / (below + above)) * 100;
  return el('div', { class: 'stack', role: 'img', 'aria-label': told, style: `grid-template-columns:${share}% 1fr` },
    el('div', { class: 'below' }, ...part(candidate, -1).map((term) => block(term, below))),
    el('div', { class: 'above' }, ...part(candidate, 1).map((term) => block(term, above))));
}

function verdict(best, second) {
  if (!second) return best ? 'the only candidate' : '';
  const other = Object.fromEntries(second.terms.map((term) => [term.name, term.contribution]));
  const gaps = best.terms.map((term) => [term.name, term.contribution - (other[term.name] ?? 0)]).filter(([, gap]) => Math.abs(gap) >= 0.05);
  gaps.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const parts = gaps.slice(0, 3).map(([name, gap]) => `${word(name)} ${signed(gap)}`).join(', ');
  return `${best.node} is ${(best.sum - second.sum).toFixed(1)} ahead of the runner-up ${second.node}${parts ? `: ${parts}` : ''}`;
}

function termsTable(candidates) {
  const heads = ['node', 'term', 'value', '× weight', '=', 'age', 'note'];
  return el('details', { class: 'small' }, el('summary', {}, 'all terms'), el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, ...heads.map((text) => el('th', { scope: 'col' }, text)))),
    el('tbody', {}, ...candidates.flatMap((candidate) => candidate.terms.map((term) => el('tr', {}, el('td', {}, candidate.node), el('td', {}, word(term.name)), el('td', { class: 'num' }, term.value.toFixed(2)),
      el('td', { class: 'num' }, `${term.weight}`), el('td', { class: 'num' }, signed(term.contribution, 2)), el('td', { class: 'num' }, term.ageSeconds === null ? '–' : `${term.ageSeconds.toFixed(1)} s`), el('td', {}, term.note))))))));
}

function placementBody(record) {
  const { data } = record;
  const shown = data.candidates.slice(0, SHOWN);
  const below = Math.max(0.001, ...shown.map((candidate) => size(part(candidate, -1))));
  const above = Math.max(0.001, ...shown.map((candidate) => size(part(candidate, 1))));
  const names = shown.length ? shown[0].terms.map((term) => term.name) : [];
  const mood = data.outcome === 'rejected' || data.outcome === 'error' ? 'bad' : 'good';
  return [
    el('header', {}, el('h3', {}, `${data.namespace}/${data.pod}`), el('span', {}, data.degraded && el('span', { class: 'tag warn' }, 'degraded'), ' ', el('span', { class: `tag ${mood}` }, data.outcome))),
    el('div', { class: 'small dim' }, `${clock(record.at)} UTC · ${data.considered} node(s) considered${data.model ? ` · ${data.model}` : ''}`),
    shown.length > 0 && el('p', { class: 'small verdict' }, verdict(shown[0], shown[1])),
    ...shown.map((candidate, index) => el('div', { class: 'candidate' }, el('span', { class: index === 0 ? 'best' : '' }, candidate.node, index === 1 && el('span', { class: 'dim small' }, ' runner-up')),
      bar(candidate, below, above), el('span', { class: 'num' }, `${candidate.sum.toFixed(1)} → ${candidate.score}/10`))),
    names.length > 0 && el('div', { class: 'legend' }, ...names.map((name) => el('span', {}, el('i', { style: `background:${colour(name)}` }), word(name))), el('span', {}, 'left of the line: subtracted')),
    ...Object.entries(data.reasons).map(([reason, count]) => el('div', { class: 'small' }, `${count} × ${reason}`)),
    data.message && el('div', { class: 'small' }, data.message),
    shown.length > 0 && termsTable(data.candidates),
  ];
}

export function drawPlacements(state, panel) {
  const decisions = [...state.decisions].reverse();
  empty(panel, decisions.length === 0, 'No pod was placed yet.');
  list(child(panel, 'grid', () => el('div', { class: 'wide' })), decisions.map((record) => ({ key: record.id, title: record.subject, text: () => record.id, make: () => placementBody(record) })));
}

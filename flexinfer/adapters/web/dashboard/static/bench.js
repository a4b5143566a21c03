// What was measured: model × device class with its curve and spread, what a million tokens cost, and the runs.
import { child, el, empty, known, list, number, svg, values } from './draw.js';

const WIDTH = 190, HEIGHT = 84, LEFT = 16, TOP = 16, BOTTOM = 16;

function curve(data) {
  const points = data.curve;
  if (points.length < 2) return null;
  const streams = [...new Set(points.map((point) => point.concurrency))].sort((a, b) => a - b);
  const most = Math.max(...points.map((point) => point.tokensPerSecond)) * (1 + (data.spreadPercent ?? 0) / 200) || 1;
  const x = (point) => LEFT + (streams.length > 1 ? streams.indexOf(point.concurrency) / (streams.length - 1) : 0.5) * (WIDTH - 2 * LEFT);
  const y = (rate) => HEIGHT - BOTTOM - (rate / most) * (HEIGHT - TOP - BOTTOM);
  const prompts = [...new Set(points.map((point) => point.promptTokens))];
  const told = points.map((point) => `${point.tokensPerSecond.toFixed(0)} tokens/s at ${point.concurrency} streams`).join(', ');
  const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: 'img', 'aria-label': `curve: ${told}` },
    svg('line', { x1: 4, x2: WIDTH - 4, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM, class: 'axis' }));
  prompts.forEach((prompt, index) => {
    const row = points.filter((point) => point.promptTokens === prompt).sort((a, b) => a.concurrency - b.concurrency);
    picture.append(svg('polyline', { points: row.map((point) => `${x(point)},${y(point.tokensPerSecond)}`).join(' '), class: `curve c${index % 3}` }));
    for (const point of row) picture.append(svg('circle', { cx: x(point), cy: y(point.tokensPerSecond), r: 2.5, class: `dot c${index % 3}` }));
    if (index === 0) for (const point of row) picture.append(svg('text', { x: x(point), y: y(point.tokensPerSecond) - 5, 'text-anchor': 'middle' }, point.tokensPerSecond.toFixed(0)));
  });
  const first = points.find((point) => point.concurrency === streams[0]);
  if (known(data.spreadPercent)) {
    const half = first.tokensPerSecond * data.spreadPercent / 200;
    picture.append(svg('line', { x1: x(first), x2: x(first), y1: y(first.tokensPerSecond - half), y2: y(first.tokensPerSecond + half), class: 'whisker' }));
  }
  for (const stream of streams) picture.append(svg('text', { x: x({ concurrency: stream }), y: HEIGHT - 4, 'text-anchor': 'middle' }, `${stream}`));
  return picture;
}

function speedCell(data, best) {
  return el('td', { class: 'num' }, el('span', { class: best ? 'best' : '' }, data.tokensPerSecond.toFixed(1)), best && el('span', { class: 'small best' }, ' best'),
    known(data.spreadPercent) && el('div', { class: 'small dim' }, `± ${(data.spreadPercent / 2).toFixed(1)} %`),
    data.firstToken && el('div', { class: 'small dim' }, `first token ${(data.firstToken.p50 * 1000).toFixed(0)} ms`),
    data.virtual && el('div', { class: 'small dim' }, 'virtual'), curve(data));
}

function table(caption, rows, columns, cell) {
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, el('table', {}, el('caption', { class: 'dim small' }, caption),
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'model'), ...columns.map((name) => el('th', { scope: 'col', class: 'num' }, name)))),
    el('tbody', {}, ...rows.map((row) => el('tr', {}, el('th', { scope: 'row' }, row.names, el('div', { class: 'small dim' }, row.workload)), ...columns.map((column) => cell(row, column)))))));
}

function matrices(results) {
  const columns = [...new Set(results.map((record) => record.data.deviceClass))].sort();
  const rows = [...new Set(results.map((record) => record.data.workload))].sort().map((workload) => {
    const found = results.map((record) => record.data).filter((data) => data.workload === workload);
    return {
      workload, names: [...new Set(found.map((data) => data.model))].join(', '), best: Math.max(...found.map((data) => data.tokensPerSecond)),
      by: Object.fromEntries(found.map((data) => [data.deviceClass, data])),
    };
  });
  const blank = () => el('td', { class: 'num dim' }, '–');
  const speeds = table('Tokens/s: median at one stream with its spread; the curve is all streams together by their number', rows, columns,
    (row, column) => (row.by[column] ? speedCell(row.by[column], columns.length > 1 && row.by[column].tokensPerSecond === row.best) : blank()));
  const priced = results.some((record) => known(record.data.costPerMillionTokens));
  const costs = priced
    ? table('Cost per million tokens at the fastest point of the curve, in the unit of the nodes’ price', rows, columns, (row, column) => {
      const cost = row.by[column]?.costPerMillionTokens;
      return known(cost) ? el('td', { class: 'num' }, cost.toFixed(cost < 1 ? 3 : 2)) : blank();
    })
    : el('p', { class: 'dim' }, 'No price is known: annotate nodes with flexinfer.ai/cost, their price per hour.');
  return [el('h2', {}, 'Measured'), speeds, el('h2', {}, 'Cost per million tokens'), costs];
}

function runRow(key, run) {
  const last = run.samples[run.samples.length - 1];
  const end = run.ended;
  const failed = end?.type.startsWith('bench.failed');
  const text = !end ? 'running' : failed ? `${end.data.reason}: ${end.data.message} ${end.data.remedy}` : `done, ${end.data.tokensPerSecond.toFixed(1)} tokens/s`;
  return el('tr', {}, el('th', { scope: 'row' }, key), el('td', {}, run.started.data.deviceClass), el('td', { class: 'num' }, `${run.samples.filter((sample) => !sample.warmup).length}`),
    el('td', { class: 'num' }, number(last?.tokensPerSecond, 1)), el('td', { class: failed ? 'bad' : '' }, text));
}

function runsTable(runs) {
  const heads = ['key', 'device class', 'samples', 'last tokens/s', 'state'];
  return [el('h2', {}, 'Runs seen'), el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'runs seen' }, el('table', {},
    el('thead', {}, el('tr', {}, ...heads.map((text, index) => el('th', { scope: 'col', class: index === 2 || index === 3 ? 'num' : '' }, text)))),
    el('tbody', {}, ...[...runs].reverse().map(([key, run]) => runRow(key, run)))))];
}

export function drawBench(state, panel) {
  const results = values(state.result), runs = Object.entries(state.runs);
  empty(panel, results.length + runs.length === 0, 'Nothing measured yet. A model is measured once on each device class that can hold it.');
  const parts = [];
  if (results.length) parts.push({ key: 'matrix', text: () => results.map((record) => record.id).join(), make: () => matrices(results) });
  if (runs.length) parts.push({ key: 'runs', text: () => JSON.stringify(runs.map(([key, run]) => [key, run.samples.length, run.ended?.id])), make: () => runsTable(runs) });
  list(child(panel, 'body', () => el('div')), parts, { tag: 'div', className: 'part' });
}

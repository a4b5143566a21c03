// Time travel: asks for the state of a moment of the tape, by slider, by steps from mark to mark, or playing.
import { say, svg } from './draw.js';

const $ = (id) => document.getElementById(id);
const BEAT = 250;

export function travel(tape, show) {
  const length = Math.max(0.001, tape.end - tape.start);
  const slider = $('slider');
  let playing = null, busy = false, wish = null;

  async function go(offset) {
    const at = tape.start + Math.min(Math.max(offset, 0), length);
    slider.value = at - tape.start;
    const mark = tape.marks.filter((item) => item.at <= at + 1e-6).pop();
    const text = new Date(at * 1000).toISOString().slice(0, 19).replace('T', ' ') + ' UTC';
    say($('moment'), text);
    say($('mark'), mark ? mark.text : '');
    slider.setAttribute('aria-valuetext', mark ? `${text}, ${mark.text}` : text);
    wish = at;
    if (busy) return;
    busy = true;
    while (wish !== null) {
      const asked = wish;
      wish = null;
      try {
        const answer = await fetch(`api/state?at=${asked}`);
        if (answer.ok) show(await answer.json()); else throw new Error(`${answer.status}`);
      } catch { show(null); }
    }
    busy = false;
  }

  function play(on) {
    clearInterval(playing);
    playing = on ? setInterval(() => {
      const next = Number(slider.value) + (BEAT / 1000) * Number($('speed').value);
      go(next);
      if (next >= length) play(false);
    }, BEAT) : null;
    $('play').setAttribute('aria-pressed', Boolean(on));
    $('play').textContent = on ? 'Stop' : 'Play';
  }

  function step(direction) {
    const at = tape.start + Number(slider.value);
    const marks = direction > 0 ? tape.marks.filter((item) => item.at > at + 0.002) : tape.marks.filter((item) => item.at < at - 0.002).reverse();
    play(false);
    go(marks.length ? marks[0].at - tape.start + 0.001 : direction > 0 ? length : 0);
  }

  slider.max = length;
  slider.addEventListener('input', () => { play(false); go(Number(slider.value)); });
  slider.addEventListener('keydown', (event) => {
    const jump = { ArrowRight: 0.01, ArrowLeft: -0.01, ArrowUp: 0.01, ArrowDown: -0.01, PageUp: 0.1, PageDown: -0.1 }[event.key];
    if (!jump) return;
    event.preventDefault();
    play(false);
    go(Number(slider.value) + jump * length);
  });
  $('play').addEventListener('click', () => {
    if (!playing && Number(slider.value) >= length) slider.value = 0;
    play(!playing);
  });
  $('earlier').addEventListener('click', () => step(-1));
  $('later').addEventListener('click', () => step(1));
  $('travel').addEventListener('submit', (event) => event.preventDefault());

  const bars = $('bars'), most = Math.max(1, ...tape.bars);
  bars.setAttribute('viewBox', `0 0 ${tape.bars.length} 20`);
  tape.bars.forEach((count, index) => { if (count) { const height = Math.max(1.5, Math.sqrt(count / most) * 20); bars.append(svg('rect', { x: index + 0.1, y: 20 - height, width: 0.8, height })); } });
  $('travel').hidden = false;
  go(length);
}

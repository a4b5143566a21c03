// Texts on the page with less than 4.5:1 contrast to what is behind them.
(() => {
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = (node) => { for (let n = node; n; n = n.parentElement) { const c = rgb(getComputedStyle(n).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const found = [];
  for (const node of document.querySelectorAll('h1, h3, .dim, .tag, .best, td, th, button, .bad, .warn')) {
    if (!node.innerText || !node.offsetParent || node.closest('#banner')) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(paper(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${node.className || node.tagName} ${node.innerText.slice(0, 20)} ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return found;
})()

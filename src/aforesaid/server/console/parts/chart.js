// A line chart that fits its box, with the same numbers as a table.
import { html, useEffect, useRef } from "../lib/html.js";
import uPlot from "../vendor/uplot.js";
import { timeOfDay } from "../lib/format.js";

const HEIGHT = 170;

/**
 * @param {{ title: string, times: number[], lines: [string, (number | null)[], string][], unit?: (value: number) => string, table: boolean }} props
 */
export function Chart({ title, times, lines, unit = plain, table }) {
  return html`<figure class="card chart"><figcaption>${title}</figcaption>
    <ul class="legend">${lines.map(([name, values, colour]) => html`<li key=${name}><i class=${`line-${colour}`}></i>${name} <strong>${last(values) === null ? "–" : unit(/** @type {number} */ (last(values)))}</strong></li>`)}</ul>
    ${table ? html`<${Numbers} times=${times} lines=${lines} unit=${unit} title=${title} />` : html`<${Plot} title=${title} times=${times} lines=${lines} unit=${unit} />`}
  </figure>`;
}

/** @param {{ title: string, times: number[], lines: [string, (number | null)[], string][], unit: (value: number) => string }} props */
function Plot({ title, times, lines, unit }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const data = [times, ...lines.map(([, values]) => values)];
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const made = new uPlot(options(element, lines, unit), data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => { observer.disconnect(); made.destroy(); plot.current = null; };
  }, []);
  useEffect(() => plot.current?.setData(data), [times.at(-1), times.length]);
  const spoken = lines.map(([name, values]) => `${name} ${last(values) === null ? "none" : unit(/** @type {number} */ (last(values)))}`).join(", ");
  return html`<div class="plot" ref=${box} role="img" aria-label=${`${title}, now: ${spoken}`}></div>`;
}

/** @param {{ title: string, times: number[], lines: [string, (number | null)[], string][], unit: (value: number) => string }} props */
function Numbers({ title, times, lines, unit }) {
  const rows = times.map((time, index) => ({ time, index })).slice(-12).reverse();
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label=${title}><table><thead><tr><th>Time</th>${lines.map(([name]) => html`<th key=${name}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(({ time, index }) => html`<tr key=${time}><td>${timeOfDay(new Date(time * 1000).toISOString())}</td>${lines.map(([name, values]) => html`<td key=${name}>${values[index] === null ? "–" : unit(/** @type {number} */ (values[index]))}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** @param {HTMLElement} element @param {[string, (number | null)[], string][]} lines @param {(value: number) => string} unit */
function options(element, lines, unit) {
  const style = getComputedStyle(element);
  const colour = (/** @type {string} */ name) => resolved(element, `var(--${name})`);
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: `12px ${style.fontFamily}` };
  return {
    width: element.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true }, y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, Math.max(most * 1.15, 1e-3)] } },
    axes: [axis, { ...axis, size: 62, values: (/** @type {any} */ _, /** @type {number[]} */ values) => values.map(unit) }],
    series: [{}, ...lines.map(([label, , name]) => ({ label, stroke: colour(name), width: 2, spanGaps: true, points: { show: false } }))],
  };
}

/** A canvas takes no custom properties, so let the browser resolve the colour. @param {HTMLElement} element @param {string} value */
function resolved(element, value) {
  element.style.color = value;
  const { color } = getComputedStyle(element);
  element.style.color = "";
  return color;
}

/** @param {(number | null)[]} values */
const last = (values) => values.at(-1) ?? null;

/** @param {number} value */
const plain = (value) => (value >= 10 ? Math.round(value).toLocaleString() : Number(value.toFixed(1)).toLocaleString());

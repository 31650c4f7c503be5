// Line and bar charts that fit their box, with the same numbers as a table.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { onTheme } from "../lib/theme.js";
import uPlot from "../vendor/uplot.js";
import { shortDate, timeOfDay } from "../lib/format.js";

const HEIGHT = 170;
/** Steps of an axis that counts things. */
const WHOLE = [1, 2, 5].flatMap((step) => [0, 1, 2, 3, 4, 5, 6].map((zeros) => step * 10 ** zeros)).sort((one, other) => one - other);

/** Steps of an axis of times within a day, in seconds. */
const TIMES = [60, 120, 300, 600, 900, 1800, 3600];

/** @typedef {[name: string, values: (number | null)[], colour: string, whole?: number | null]} Line With `whole`, the legend shows it, otherwise the latest value. */
/** @typedef {{ title: string, times: number[], lines: Line[], unit: (value: number) => string }} Drawn */

/** @param {{ title: string, times: number[], lines: Line[], unit?: (value: number) => string, table: boolean, days?: boolean }} props `days`: the times are days. */
export function Chart({ title, times, lines, unit = plain, table, days = false }) {
  return html`<figure class="card chart"><figcaption>${title}</figcaption>
    <ul class="legend">${lines.map((line) => html`<li key=${line[0]}><i class=${`line-${line[2]}`}></i>${line[0]} <strong>${shown(line, unit)}</strong></li>`)}</ul>
    ${table ? html`<${Numbers} times=${times} lines=${lines} unit=${unit} title=${title} days=${days} />` : html`<${Plot} title=${title} times=${times} lines=${lines} unit=${unit} days=${days} />`}
  </figure>`;
}

/** @param {Line} line @param {(value: number) => string} unit */
function shown([, values, , whole = last(values)], unit) {
  return whole === null ? "–" : unit(whole);
}

/**
 * Bars of counts with words below them.
 * @param {{ title: string, names: string[], counts: number[], table: boolean }} props
 */
export function Bars({ title, names, counts, table }) {
  const whole = counts.reduce((sum, count) => sum + count, 0);
  return html`<figure class="card chart"><figcaption>${title}</figcaption>
    ${table ? html`<div class="table-scroll" tabindex="0" role="region" aria-label=${title}><table><thead><tr><th>Range</th><th>Count</th><th>Share</th></tr></thead>
      <tbody>${names.map((name, index) => html`<tr key=${name}><td>${name}</td><td>${plain(counts[index])}</td><td>${whole ? Math.round((counts[index] / whole) * 100) : 0} %</td></tr>`)}</tbody></table></div>`
      : html`<ul class="bars" aria-label=${title}>${names.map((name, index) => html`<li key=${name}><span class="bar-name">${name}</span>
        <progress max=${Math.max(1, ...counts)} value=${counts[index]} aria-label=${name}></progress><strong>${plain(counts[index])}</strong></li>`)}</ul>`}
  </figure>`;
}

/** @param {Drawn & { days: boolean }} props */
function Plot({ title, times, lines, unit, days }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const data = [times, ...lines.map(([, values]) => values)];
  const [colours, setColours] = useState(0);
  useEffect(() => onTheme(() => setColours((count) => count + 1)), []);
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const made = new uPlot(options(element, lines, unit, days), data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => { observer.disconnect(); made.destroy(); plot.current = null; };
  }, [colours]);
  useEffect(() => plot.current?.setData(data), [JSON.stringify(data)]);
  const spoken = lines.map((line) => `${line[0]} ${shown(line, unit)}`).join(", ");
  return html`<div class="plot" ref=${box} role="img" aria-label=${`${title}: ${spoken}`}></div>`;
}

/** @param {Drawn & { days: boolean }} props */
function Numbers({ title, times, lines, unit, days }) {
  const every = times.map((time, index) => ({ time, index })).filter(({ index }) => !days || lines.some(([, values]) => values[index]));
  const rows = (days ? every : every.slice(-12)).reverse();
  const name = timeName(days);
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label=${title}><table><thead><tr><th>${days ? "Day" : "Time"}</th>${lines.map(([name]) => html`<th key=${name}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(({ time, index }) => html`<tr key=${time}><td>${name(time)}</td>${lines.map(([name, values]) => html`<td key=${name}>${values[index] === null ? "–" : unit(/** @type {number} */ (values[index]))}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** @param {HTMLElement} element @param {Line[]} lines @param {(value: number) => string} unit @param {boolean} days */
function options(element, lines, unit, days) {
  const style = getComputedStyle(element);
  const colour = (/** @type {string} */ name) => resolved(element, `var(--${name})`);
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: `12px ${style.fontFamily}` };
  return {
    width: element.clientWidth, height: HEIGHT, padding: [10, 24, 0, 0], legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true }, y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, Math.max(most * 1.15, unit === plain ? 1 : 1e-3)] } },
    axes: [{ ...axis, size: 26, space: 64, ...(days ? {} : { incrs: TIMES }), values: (/** @type {any} */ _, /** @type {number[]} */ values) => values.map(timeName(days)) },
      { ...axis, size: 62, ...(unit === plain ? { incrs: WHOLE } : {}), values: (/** @type {any} */ _, /** @type {number[]} */ values) => values.map(unit) }],
    series: [{}, ...lines.map(([label, , name]) => ({ label, stroke: colour(name), width: 2, spanGaps: true, points: { show: (/** @type {any} */ made) => made.data[0].length < 32, size: 5 } }))],
  };
}

/** @param {boolean} days */
const timeName = (days) => (/** @type {number} */ time) => (days ? shortDate : timeOfDay)(new Date(time * 1000).toISOString());

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

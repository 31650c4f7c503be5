// Tables of the insights page: groups, percentiles, tools.
import { html } from "../lib/html.js";
import { capital, number } from "../lib/format.js";
import { MEASURES, SHARES, measured, percentile, share } from "../lib/insights.js";
import { Button } from "./ui.js";

/** @typedef {import("../lib/insights.js").Numbers} Numbers */
/** @typedef {import("../lib/insights.js").Report} Report */

/**
 * The groups with the most conversations first. A name limits the charts to its group.
 * @param {{ report: Report, names: Map<string, string>, chosen: string, onChoose: (value: string) => void }} props
 */
export function GroupTable({ report, names, chosen, onChoose }) {
  const rows = [...report.groups].sort((one, other) => other.counts.active - one.counts.active).slice(0, 100);
  const wait = (/** @type {Numbers} */ row, /** @type {string} */ name, /** @type {"p50" | "p90"} */ part) => measured("ms", percentile(row, name, part));
  return html`<section class="card"><h2>By ${report.by}</h2>
    <div class="table-scroll" tabindex="0" role="region" aria-label=${`Numbers by ${report.by}`}><table class="figures"><thead><tr><th>${capital(report.by ?? "")}</th><th>Active</th><th>Opened</th><th>Closed</th><th>Reopened</th><th>First response</th><th>9 of 10 within</th><th>Reply time</th><th>Without a person</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.value ?? ""} class=${chosen && row.value === chosen ? "chosen-row" : ""}><th scope="row">${row.value ? html`<${Button} kind="quiet small name" aria-pressed=${row.value === chosen} onClick=${() => onChoose(/** @type {string} */ (row.value))}>${names.get(row.value) ?? row.value}<//>` : html`<span class="muted">None</span>`}</th>
        <td>${number(row.counts.active)}</td><td>${number(row.counts.opened)}</td><td>${number(row.counts.closed)}</td><td>${number(row.counts.reopened)}</td><td>${wait(row, "first_response", "p50")}</td><td>${wait(row, "first_response", "p90")}</td><td>${wait(row, "reply_time", "p50")}</td><td>${share(row.shares.automation)}</td></tr>`)}</tbody></table></div>
    ${report.groups.length > 100 && html`<p class="muted">The 100 most active of ${number(report.groups.length)}. The CSV file has all.</p>`}
  </section>`;
}

/** @param {{ total: Numbers }} props */
export function Percentiles({ total }) {
  const rows = MEASURES.filter(([name]) => total.distributions[name]);
  const parts = /** @type {const} */ (["p50", "p75", "p90", "p95", "p99"]);
  return html`<section class="card"><h2>Percentiles</h2>
    <div class="table-scroll" tabindex="0" role="region" aria-label="Percentiles"><table class="figures"><thead><tr><th>Measure</th><th>Values</th>${parts.map((part) => html`<th key=${part}>${part}</th>`)}</tr></thead>
      <tbody>${rows.map(([name, title]) => html`<tr key=${name}><th scope="row">${title}</th><td>${number(total.distributions[name].count)}</td>${parts.map((part) => html`<td key=${part}>${measured(total.distributions[name].unit, percentile(total, name, part))}</td>`)}</tr>`)}</tbody></table></div></section>`;
}

/** What requests contained and what searches found. @param {{ total: Numbers }} props */
export function ShareTable({ total }) {
  const rows = SHARES.filter(([name]) => total.shares[name] !== undefined);
  if (!rows.length) return null;
  return html`<section class="card"><h2>Requests and searches</h2>
    <p class="muted">${number(total.counts.requests)} requests to models, ${number(total.counts.searches)} searches, ${number(total.counts.notes_made)} notes made and ${number(total.counts.notes_used)} used.</p>
    <div class="table-scroll" tabindex="0" role="region" aria-label="Requests and searches"><table class="figures"><thead><tr><th>Measure</th><th>Share</th></tr></thead>
      <tbody>${rows.map(([name, title]) => html`<tr key=${name}><th scope="row">${title}</th><td>${share(total.shares[name])}</td></tr>`)}</tbody></table></div></section>`;
}

/** Questions that were asked again. @param {{ repeats: any, by: string, names: Map<string, string> }} props */
export function RepeatTable({ repeats, by, names }) {
  const rows = (repeats.by[by] ?? []).filter((/** @type {any} */ row) => row.repeated).slice(0, 20);
  return html`<h3>Asked again within seven days</h3><p class="muted">${number(repeats.repeated)} of ${number(repeats.questions)} questions.</p>
    ${rows.length > 0 && html`<div class="table-scroll" tabindex="0" role="region" aria-label=${`Questions asked again by ${by}`}><table class="figures"><thead><tr><th>${capital(by)}</th><th>Questions</th><th>Asked again</th><th>Share</th></tr></thead>
      <tbody>${rows.map((/** @type {any} */ row) => html`<tr key=${row.value ?? ""}><th scope="row">${row.value ? names.get(row.value) ?? row.value : html`<span class="muted">None</span>`}</th><td>${number(row.questions)}</td><td>${number(row.repeated)}</td><td>${share(row.share)}</td></tr>`)}</tbody></table></div>`}`;
}

/** @param {{ tools: Record<string, { calls: number, errors: number }> }} props */
export function ToolTable({ tools }) {
  const rows = Object.entries(tools).sort(([, one], [, other]) => other.calls - one.calls).slice(0, 50);
  if (!rows.length) return null;
  return html`<section class="card"><h2>Tools</h2>
    <div class="table-scroll" tabindex="0" role="region" aria-label="Tools"><table class="figures"><thead><tr><th>Tool</th><th>Calls</th><th>Errors</th></tr></thead>
      <tbody>${rows.map(([name, counts]) => html`<tr key=${name}><th scope="row">${name}</th><td>${number(counts.calls)}</td><td>${number(counts.errors)}</td></tr>`)}</tbody></table></div></section>`;
}

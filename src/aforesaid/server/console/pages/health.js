// How the server does: rates, latencies, errors, stores, queues, connections, keys.
import { html, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { capital, duration, latency, number } from "../lib/format.js";
import { useEvery, useLoad } from "../lib/hooks.js";
import { may, session } from "../lib/session.js";
import { Chart } from "../parts/chart.js";
import { Keys } from "../parts/keys.js";
import { Icon } from "../parts/icons.js";
import { Chip, Loading, PageHead, ProblemNote } from "../parts/ui.js";

const EVERY = 5000;

export default function Health() {
  const ready = useLoad(readReady, []);
  const allOwners = session.access?.owners === null;
  const series = useLoad(async (signal) => (allOwners ? get("v1/health/series", {}, signal) : null), [allOwners]);
  useEvery(() => { ready.reload(); series.reload(); }, EVERY);
  return html`
    <${PageHead} title="Health" lead="Renewed every five seconds while you look." />
    <${ProblemNote} problem=${ready.problem} retry=${ready.reload} />
    ${ready.data && html`<${Ready} ready=${ready.data} />`}
    ${!allOwners && html`<p class="note">Charts need a key for all owners.</p>`}
    <${ProblemNote} problem=${series.problem} retry=${series.reload} /><${Loading} on=${allOwners && series.loading && !series.data} />
    ${series.data && html`<${Overview} series=${series.data} />`}
    ${may("admin") && allOwners && html`<${Keys} />`}`;
}

/** @param {{ ready: any }} props */
function Ready({ ready }) {
  const good = ready.status === "ready" && !ready.degraded;
  return html`<section class="card ready" aria-label="State"><div class="row"><span class=${`state-dot ${good ? "good" : ready.status === "ready" ? "warn" : "bad"}`} aria-hidden="true"></span>
      <strong>${good ? "Everything works" : ready.status === "ready" ? "Works with limits" : ready.status === "draining" ? "The server is stopping" : "The server is not ready"}</strong></div>
    <ul class="checks">${ready.checks.map((/** @type {any} */ check) => html`<li key=${check.about}><${Icon} name=${check.state === "well" ? "check" : "warn"} /><span><strong>${capital(check.about)}</strong> ${check.found}</span>
      <${Chip} kind=${{ well: "good", warning: "warn", problem: "bad" }[/** @type {"well"} */ (check.state)]}>${check.state}<//></li>`)}</ul></section>`;
}

/** @param {{ series: any }} props */
function Overview({ series }) {
  const [table, setTable] = useState(false);
  const { samples, alerts, every } = series;
  const last = samples.at(-1) ?? {};
  const times = samples.map((/** @type {any} */ each) => Date.parse(each.at) / 1000);
  const line = (/** @type {string} */ name, scale = 1) => samples.map((/** @type {any} */ each) => (each[name] === null ? null : each[name] * scale));
  return html`
    <${Alerts} alerts=${alerts} />
    <dl class="numbers">
      ${[["Requests", `${perMinute(last.requests, every)}/min`], ["Latency (p95)", last.p95 === null || last.p95 === undefined ? "–" : latency(last.p95)], ["Errors", `${number(last.errors ?? 0)}`], ["Connections", number(last.connections ?? 0)],
        ["Answers now", number(last.turns_now ?? 0)], ["Running for", duration(series.uptime)]].map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
    <div class="row spread"><h2>Last hour</h2><label class="check"><input type="checkbox" checked=${table} onChange=${(/** @type {any} */ event) => setTable(event.target.checked)} />As tables</label></div>
    <div class="charts">
      <${Chart} title="Requests per minute" times=${times} table=${table} lines=${[["Requests", line("requests", 60 / every), "accent"], ["Turns stored", line("turns", 60 / every), "blue"], ["Searches", line("searches", 60 / every), "violet"]]} />
      <${Chart} title="Latency of requests" unit=${latency} times=${times} table=${table} lines=${[["p50", line("p50"), "accent"], ["p95", line("p95"), "warn"], ["p99", line("p99"), "bad"]]} />
      <${Chart} title="Errors and refusals" times=${times} table=${table} lines=${[["Errors", line("errors"), "bad"], ["Refused", line("refused"), "warn"]]} />
      <${Chart} title="Latency of the store" unit=${latency} times=${times} table=${table} lines=${[["p50", line("store_p50"), "accent"], ["p95", line("store_p95"), "warn"], ["p99", line("store_p99"), "bad"]]} />
      <${Chart} title="Connections and answers" times=${times} table=${table} lines=${[["Connections", line("connections"), "accent"], ["Answers in progress", line("turns_now"), "blue"], ["Frames waiting", line("frames_waiting"), "warn"]]} />
      <${Chart} title="Cache and spool" times=${times} table=${table} lines=${[["Cache hits, %", line("cache_hit_rate", 100), "accent"], ["Operations in the spool", line("spool_operations"), "warn"], ["Breaker (2 is open)", line("breaker"), "bad"]]} />
    </div>`;
}

/** @param {{ alerts: any[] }} props */
function Alerts({ alerts }) {
  if (!alerts.length) return html`<p class="note good"><${Icon} name="check" /><span>No alert would fire.</span></p>`;
  return html`<ul class="alerts">${alerts.map((each) => html`<li key=${each.name} class=${`note ${each.severity === "critical" ? "bad" : "warn"}`} role="alert"><${Icon} name="warn" /><div><p><strong>${each.summary}</strong></p><p class="next">${each.action}</p></div></li>`)}</ul>`;
}

/** A server that is not ready answers 503 with the same document. @param {AbortSignal} signal */
async function readReady(signal) {
  try {
    return await get("ready", {}, signal);
  } catch (/** @type {any} */ error) {
    if (error.document?.checks) return error.document;
    throw error;
  }
}

/** @param {number | undefined} count @param {number} every */
const perMinute = (count, every) => number(Math.round(((count ?? 0) * 60) / every));

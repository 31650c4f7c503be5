// How conversations went, for the people who answer for them: volumes, response times, outcomes.
import { html, useEffect, useState } from "../lib/html.js";
import { get, request } from "../lib/api.js";
import { download } from "../lib/files.js";
import { number, span } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { GROUPS, MEASURES, PERIODS, bucketsOf, byDay, firstDay, measured, percentile, share } from "../lib/insights.js";
import { replaceQuery } from "../lib/router.js";
import { CHANNELS } from "../lib/records.js";
import { session } from "../lib/session.js";
import { Bars, Chart } from "../parts/chart.js";
import { toast } from "../parts/dialog.js";
import { GroupTable, Percentiles, ShareTable, ToolTable } from "../parts/insight_tables.js";
import { TopicsCard } from "../parts/topics.js";
import { Button, Empty, Loading, PageHead, ProblemNote, SelectField, Time } from "../parts/ui.js";

/** @typedef {import("../lib/insights.js").Numbers} Numbers */
/** @typedef {import("../lib/insights.js").Report} Report */
/** @typedef {{ days: string, by: string, channel: string, client_id: string, agent: string }} Choice */

/** @param {{ query: URLSearchParams }} props */
export default function Insights({ query }) {
  const [choice, setChoice] = useState(/** @type {Choice} */ ({
    days: query.get("days") ?? "30", by: query.get("by") ?? "channel", channel: query.get("channel") ?? "", client_id: query.get("client_id") ?? "", agent: query.get("agent") ?? "",
  }));
  const [table, setTable] = useState(false);
  const wanted = filterOf(choice);
  const days = useLoad((signal) => get("v1/analytics", { ...wanted, by: "day" }, signal), [JSON.stringify(wanted), session.owner]);
  // Roll-ups have one dimension besides the day, so groups are those of the whole period.
  const groups = useLoad((signal) => get("v1/analytics", { date_from: wanted.date_from, by: choice.by }, signal), [wanted.date_from, choice.by, session.owner]);
  const clients = useLoad((signal) => get("v1/clients", { limit: 1000 }, signal), [session.owner]);
  useEffect(() => replaceQuery({ ...choice, days: choice.days === "30" ? "" : choice.days, by: choice.by === "channel" ? "" : choice.by }), [JSON.stringify(choice)]);
  const names = new Map(/** @type {[string, string][]} */ ((clients.data?.contacts ?? []).map((/** @type {any} */ each) => [each.id, each.name])));
  const report = /** @type {Report | null} */ (days.data);
  const isEmpty = report && !report.total.counts.active && !report.total.counts.opened;
  return html`
    <${PageHead} title="Insights" lead="How many conversations there were, how fast they were answered, and how they ended.">
      <${Save} wanted=${wanted} by=${choice.by} /><//>
    <${Controls} choice=${choice} onChange=${setChoice} names=${names} table=${table} onTable=${setTable} />
    <${ProblemNote} problem=${days.problem ?? groups.problem} retry=${() => { days.reload(); groups.reload(); }} /><${Loading} on=${days.loading && !report} />
    ${isEmpty && html`<${Empty} icon="insights" title="Nothing happened in this period"><p>Every stored conversation counts, from any channel. Choose a longer period, or come back after the first conversations.</p><//>`}
    ${report && !isEmpty && html`<${Headline} total=${report.total} />
      <div class="charts"><${DayCharts} report=${report} table=${table} /><${Spread} total=${report.total} table=${table} /></div>
      ${groups.data && html`<${GroupTable} report=${groups.data} names=${names} chosen=${choice[fieldOf(choice.by)]} onChoose=${(/** @type {string} */ value) => setChoice({ ...choice, ...only(choice.by, value) })} />`}
      <${TopicsCard} from=${wanted.date_from} by=${choice.by} names=${names} />
      <${Percentiles} total=${report.total} /><${ShareTable} total=${report.total} /><${ToolTable} tools=${report.total.tools} />
      <p class="muted">Counted from the stored messages, without their words. Days are days in UTC. Times are medians (p50) and percentiles, never averages: one conversation that waited a weekend would hide the others. Counted <${Time} at=${report.counted_at} />.</p>`}`;
}

/** At most one filter can be given to the server. @param {Choice} choice */
function filterOf({ days, channel, client_id: client, agent }) {
  const one = channel ? { channel } : client ? { client_id: client } : agent ? { agent } : {};
  return { date_from: firstDay(new Date(), Number(days)), ...one };
}

/** @param {string} by @param {string} value */
function only(by, value) {
  return { channel: "", client_id: "", agent: "", [fieldOf(by)]: value };
}

/** @param {string} by @returns {"channel" | "client_id" | "agent"} */
const fieldOf = (by) => (by === "client" ? "client_id" : by === "agent" ? "agent" : "channel");

/** @param {{ choice: Choice, onChange: (choice: Choice) => void, names: Map<string, string>, table: boolean, onTable: (on: boolean) => void }} props */
function Controls({ choice, onChange, names, table, onTable }) {
  const chosen = choice.client_id ? ["client_id", names.get(choice.client_id) ?? choice.client_id] : choice.agent ? ["agent", choice.agent] : null;
  return html`<section class="insight-controls" aria-label="Period and groups">
    <${SelectField} label="Period" value=${choice.days} options=${PERIODS} onChange=${(/** @type {string} */ days) => onChange({ ...choice, days })} />
    <${SelectField} label="Channel" value=${choice.channel} any="All channels" options=${CHANNELS} onChange=${(/** @type {string} */ channel) => onChange({ ...choice, channel, client_id: "", agent: "" })} />
    <${SelectField} label="Compare by" value=${choice.by} options=${GROUPS} onChange=${(/** @type {string} */ by) => onChange({ ...choice, by })} />
    <label class="check"><input type="checkbox" checked=${table} onChange=${(/** @type {any} */ event) => onTable(event.target.checked)} />Charts as tables</label>
    ${chosen && html`<p class="chosen">Only ${chosen[0] === "agent" ? "agent" : "client"} <strong>${chosen[1]}</strong> <${Button} kind="quiet" icon="close" label="Show all" onClick=${() => onChange({ ...choice, client_id: "", agent: "" })} /></p>`}
  </section>`;
}

/** @param {{ total: Numbers }} props */
function Headline({ total }) {
  const time = (/** @type {string} */ name, /** @type {"p50" | "p90"} */ part) => measured("ms", percentile(total, name, part));
  const facts = [
    ["Opened", number(total.counts.opened), `${number(total.counts.active)} active`], ["Closed", number(total.counts.closed), `${number(total.counts.reopened)} reopened`],
    ["First response", time("first_response", "p50"), `9 of 10 within ${time("first_response", "p90")}`], ["Reply time", time("reply_time", "p50"), `9 of 10 within ${time("reply_time", "p90")}`],
    ["Closed without a person", share(total.shares.automation), `${share(total.shares.handover)} handed over`], ["Still unresolved", share(total.shares.unresolved), "of those opened"],
  ];
  return html`<dl class="numbers headline">${facts.map(([name, value, more]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd><dd class="detail">${more}</dd></div>`)}</dl>`;
}

/** @param {{ report: Report, table: boolean }} props */
function DayCharts({ report, table }) {
  const days = byDay(report);
  const times = days.map((day) => day.time);
  const { total } = report;
  const count = (/** @type {string} */ name) => days.map(({ numbers }) => numbers?.counts[name] ?? 0);
  const wait = (/** @type {string} */ name, /** @type {"p50" | "p90"} */ part) => days.map(({ numbers }) => (numbers ? percentile(numbers, name, part) : null));
  const counted = (/** @type {[string, string, string][]} */ all) => all.map(([title, name, colour]) => [title, count(name), colour, total.counts[name]]);
  const waited = (/** @type {string} */ name) => [["Half within", wait(name, "p50"), "accent", percentile(total, name, "p50")], ["9 of 10 within", wait(name, "p90"), "warn", percentile(total, name, "p90")]];
  return html`<${Chart} title="Conversations per day" days times=${times} table=${table} lines=${counted([["Opened", "opened", "accent"], ["Closed", "closed", "blue"], ["Reopened", "reopened", "warn"]])} />
    <${Chart} title="Messages per day" days times=${times} table=${table} lines=${counted([["From users", "messages_in", "accent"], ["By assistants", "messages_out_assistant", "blue"], ["By people", "messages_out_person", "violet"]])} />
    ${(total.counts.requests + total.counts.searches > 0) && html`<${Chart} title="Requests and searches per day" days times=${times} table=${table} lines=${counted([["Requests", "requests", "accent"], ["Searches", "searches", "blue"], ["Notes used", "notes_used", "violet"]])} />`}
    <${Chart} title="First response by day" days unit=${span} times=${times} table=${table} lines=${waited("first_response")} />
    <${Chart} title="Reply time by day" days unit=${span} times=${times} table=${table} lines=${waited("reply_time")} />`;
}

/** How the waits spread: a median hides the slow ones. @param {{ total: Numbers, table: boolean }} props */
function Spread({ total, table }) {
  return MEASURES.filter(([name]) => ["first_response", "reply_time", "time_to_last_close", "messages", "request_tokens"].includes(name) && total.distributions[name]).map(([name, title]) => {
    const { names, counts } = bucketsOf(total.distributions[name]);
    return html`<${Bars} key=${name} title=${title} names=${names} counts=${counts} table=${table} />`;
  });
}

/** @param {{ wanted: Record<string, any>, by: string }} props */
function Save({ wanted, by }) {
  const [busy, setBusy] = useState(false);
  /** @param {string} how */
  async function save(how) {
    setBusy(true);
    try {
      const response = await request("GET", "v1/analytics.csv", { query: { ...(how === "day" ? wanted : { date_from: wanted.date_from }), by: how } });
      download(await response.blob(), `aforesaid-insights-by-${how}.csv`);
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    } finally {
      setBusy(false);
    }
  }
  return html`<${Button} icon="download" disabled=${busy} onClick=${() => save("day")}>CSV by day<//><${Button} icon="download" disabled=${busy} onClick=${() => save(by)}>CSV by ${by}<//>`;
}

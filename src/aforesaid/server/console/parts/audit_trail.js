// Who did what with the data, and the proof that the list was not changed.
import { html, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { capital, number, plural, shortTime } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { may, session } from "../lib/session.js";
import { Icon } from "./icons.js";
import { Button, Chip, Loading, ProblemNote, SelectField } from "./ui.js";

/** The trail does not tell missing data from another owner's. */
const OUTCOMES = /** @type {Record<string, string>} */ ({ done: "done", denied: "missing or denied", failed: "failed" });
const ACTIONS = ["read", "list", "look", "match", "export", "append", "update", "rewrite", "replace", "delete", "archive", "restore", "clear", "purge", "erase"];

/** Erasures of this owner's data. A receipt is shown once; the trail keeps when, by whom and how much. */
export function PastErasures() {
  const isOn = Boolean(session.access?.audit) && may("admin");
  const found = useLoad(async (signal) => (isOn ? get("v1/audit", { action: "erase", limit: 50 }, signal) : { events: [] }), [session.owner, isOn]);
  const events = found.data?.events ?? [];
  if (!isOn) return html`<p class="hint">The receipt is shown once: save it. A server with an audit trail also keeps when, by whom and how much was erased.</p>`;
  return html`<h3>Past erasures</h3><${ProblemNote} problem=${found.problem} retry=${found.reload} />
    ${found.data && !events.length && html`<p class="muted">Nothing was erased yet.</p>`}
    <ul class="plain lines" aria-label="Past erasures">${events.map((/** @type {any} */ each) => html`<li key=${each.n}><span>${each.conversation ? "One conversation" : "Everything"}, ${plural(each.count, "item")} removed</span><span class="muted">${shortTime(each.at)} by ${each.actor}</span></li>`)}</ul>`;
}

export function AuditTrail() {
  const [limit, setLimit] = useState(20);
  const [action, setAction] = useState("");
  const [checked, setChecked] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const isOn = Boolean(session.access?.audit) && may("admin");
  const found = useLoad(async (signal) => (isOn ? get("v1/audit", { limit, action }, signal) : { events: [] }), [limit, action, session.owner, isOn]);
  async function verify() {
    setBusy(true);
    try {
      setChecked(await get("v1/audit/verification"));
    } catch (error) {
      setChecked({ problems: [asProblem(error).message] });
    } finally {
      setBusy(false);
    }
  }
  const events = found.data?.events ?? [];
  return html`<section class="card"><div class="row spread"><h2>Audit trail</h2>${isOn && html`<${Button} icon="check" disabled=${busy} onClick=${verify}>Verify<//>`}</div>
    ${!session.access?.audit && html`<p class="muted">This server keeps no audit trail. Start it with <code>AFORESAID_AUDIT_FILE=audit.jsonl</code> to record who reads, writes and erases.</p>`}
    ${session.access?.audit && !may("admin") && html`<p class="muted">Reading the trail needs a key with the scope admin.</p>`}
    ${checked && html`<div class=${`note ${checked.problems.length ? "bad" : "good"}`} role="status"><${Icon} name=${checked.problems.length ? "warn" : "check"} /><div>
      <p>${checked.problems.length ? "The trail was changed or is damaged." : `Sound: ${plural(checked.lines, "line")} in ${plural(checked.files, "file")}, each linked to the one before.`}</p>
      ${checked.problems.slice(0, 5).map((/** @type {string} */ each) => html`<p key=${each}>${each}</p>`)}${checked.head && html`<p class="id">Keep this to prove it later: <code>${checked.head}</code></p>`}</div></div>`}
    <${ProblemNote} problem=${found.problem} retry=${found.reload} /><${Loading} on=${found.loading && !found.data} />
    ${isOn && html`<div class="narrow"><${SelectField} label="Show" value=${action} any="All actions" options=${ACTIONS.map((each) => [each, capital(each)])} onChange=${setAction} /></div>`}
    ${isOn && found.data && !events.length && html`<p class="muted">${action ? "No such event yet." : "Nothing is recorded yet."}</p>`}
    ${events.length > 0 && html`<div class="table-scroll" tabindex="0" role="region" aria-label="Events"><table><thead><tr><th>When</th><th>Who</th><th>Action</th><th>Count</th><th>Outcome</th></tr></thead><tbody>
      ${events.map((/** @type {any} */ each) => html`<tr key=${each.n}><td>${shortTime(each.at)}</td><td>${each.actor}${each.source ? ` from ${each.source}` : ""}</td><td>${each.action}</td><td>${number(each.count)}</td>
        <td><${Chip} kind=${{ done: "good", failed: "bad" }[/** @type {string} */ (each.outcome)] ?? ""}>${OUTCOMES[each.outcome] ?? each.outcome}<//></td></tr>`)}</tbody></table></div>
      ${events.length >= limit && html`<${Button} kind="quiet" onClick=${() => setLimit(limit + 100)}>Earlier events<//>`}`}
  </section>`;
}

// What is stored about an owner, how long, and how to make it go away.
import { html, useState } from "../lib/html.js";
import { get, post, request } from "../lib/api.js";
import { download } from "../lib/files.js";
import { number, plural, shortDate, size, titleOf } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { readRecord } from "../lib/records.js";
import { linkTo } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { AuditTrail, PastErasures } from "../parts/audit_trail.js";
import { Confirm, toast } from "../parts/dialog.js";
import { Receipt } from "../parts/receipt.js";
import { RetentionEditor } from "../parts/retention_editor.js";
import { Button, Loading, PageHead, ProblemNote, SelectField, Time } from "../parts/ui.js";

export default function Privacy() {
  const [receipt, setReceipt] = useState(/** @type {any} */ (() => JSON.parse(sessionStorage.getItem("aforesaid.receipt") ?? "null")));
  const [erasing, setErasing] = useState(false);
  const [busy, setBusy] = useState(false);
  const [restored, setRestored] = useState(0);
  const [round, setRound] = useState(0);
  const owner = session.owner ?? session.access?.owner ?? "";
  async function erase() {
    setBusy(true);
    try {
      setReceipt(await post("v1/erase"));
      setErasing(false);
      toast("Erased.");
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    } finally {
      setBusy(false);
    }
  }
  return html`
    <${PageHead} title="Privacy" lead="See what is stored, take it with you, decide how long it stays, or erase it." />
    ${receipt && html`<${Receipt} receipt=${receipt} onClose=${() => { sessionStorage.removeItem("aforesaid.receipt"); setReceipt(null); }} />`}
    <${Stored} key=${`${receipt?.finished_at ?? ""}/${restored}`} />
    <div class="columns">
      <${Retention} key=${`rules/${receipt?.finished_at ?? ""}/${restored}`} onSaved=${() => setRound(round + 1)} />
      <div class="stack">
        <${Expiring} key=${`expiring/${receipt?.finished_at ?? ""}/${restored}`} round=${round} />
        <${Archives} onRestored=${() => setRestored(restored + 1)} />
      </div>
    </div>
    <section class="card danger-zone"><h2>Erase everything</h2>
      <p>Removes every conversation, note, contact, summary, archive and copy of <strong>${owner}</strong>, permanently. You get a receipt with the counts. To erase one conversation, open its details. To remove one message, choose Redact beside it.</p>
      ${may("admin") ? html`<${Button} kind="danger" icon="trash" onClick=${() => setErasing(true)}>Erase everything<//>` : html`<p class="hint">This needs a key with the scope admin.</p>`}
      <${PastErasures} key=${receipt?.finished_at ?? ""} />
    </section>
    <${AuditTrail} />
    ${erasing && html`<${Confirm} title=${`Erase everything of ${owner}?`} action="Erase for good" word=${owner} busy=${busy} onConfirm=${erase} onClose=${() => setErasing(false)}>
      <p>This cannot be undone. Export the data first if you may need it.</p><//>`}`;
}

/** What there is, in numbers, with ways to look at it. */
function Stored() {
  const stats = useLoad((signal) => get("v1/stats", {}, signal), [session.owner]);
  const notes = useLoad((signal) => get("v1/notes", {}, signal), [session.owner]);
  const clients = useLoad((signal) => get("v1/clients", { limit: 1000 }, signal), [session.owner]);
  const [busy, setBusy] = useState(false);
  async function save() {
    setBusy(true);
    try {
      const response = await request("GET", "v1/export");
      download(await response.blob(), "aforesaid-export.zip");
      toast("Exported.");
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    } finally {
      setBusy(false);
    }
  }
  const found = stats.data;
  const facts = found && [
    ["Conversations", number(found.conversations), linkTo("conversations")], ["Messages", number(found.messages), linkTo("search")],
    ["Notes", number(notes.data?.notes.length ?? 0), linkTo("memory")], ["Clients", number(clients.data?.contacts.length ?? 0), linkTo("clients")],
  ];
  return html`<section class="card"><div class="row spread"><h2>What is stored</h2>
      ${may("admin") && html`<${Button} icon="download" disabled=${busy} onClick=${save}>Export everything<//>`}</div>
    <${ProblemNote} problem=${stats.problem} retry=${stats.reload} /><${Loading} on=${stats.loading && !found} />
    ${facts && html`<ul class="tiles">${facts.map((/** @type {string[]} */ [name, value, href]) => html`<li key=${name}><a href=${href}><strong>${value}</strong><span>${name}</span></a></li>`)}</ul>
      <p class="muted">${found.last_activity ? html`Last activity <${Time} at=${found.last_activity} />. ` : "Nothing was said yet. "}The export is a zip file for people and for programs.</p>`}
  </section>`;
}

const SPANS = /** @type {[string, string][]} */ ([["0", "now"], ["604800", "within a week"], ["2592000", "within a month"], ["31536000", "within a year"]]);
/** Conversations in a list before a button shows the others. */
const FEW = 6;

/** @param {{ onSaved: () => void }} props */
function Retention({ onSaved }) {
  const rules = useLoad((signal) => get("v1/retention", {}, signal), [session.owner]);
  return html`<section class="card"><h2>How long it stays</h2>
    <${ProblemNote} problem=${rules.problem} retry=${rules.reload} />
    ${rules.data && html`<${RetentionEditor} key=${JSON.stringify(rules.data)} rules=${rules.data} onSaved=${() => { rules.reload(); onSaved(); }} />`}
  </section>`;
}

/** What the rules would remove. @param {{ round: number }} props */
function Expiring({ round }) {
  const [within, setWithin] = useState("2592000");
  const [all, setAll] = useState(false);
  const expiring = useLoad((signal) => get("v1/retention/expiring", { within, limit: 50 }, signal), [within, session.owner, round]);
  const list = expiring.data?.expiring ?? [];
  const shown = all ? list : list.slice(0, FEW);
  return html`<section class="card"><h2>What would go</h2>
    <${SelectField} label="Look ahead" value=${within} options=${SPANS} onChange=${setWithin} hint="A dry run: nothing is removed by looking." />
    <${ProblemNote} problem=${expiring.problem} retry=${expiring.reload} />
    ${expiring.data && !list.length && html`<p class="muted">Nothing.</p>`}
    <ul class="plain lines">${shown.map((/** @type {any} */ each) => html`<${ExpiringItem} key=${each.conversation_id} each=${each} />`)}</ul>
    ${list.length > shown.length && html`<div><${Button} kind="quiet" onClick=${() => setAll(true)}>Show all ${list.length < 50 ? number(list.length) : "of the first 50"}<//></div>`}
  </section>`;
}

/** @param {{ each: any }} props */
function ExpiringItem({ each }) {
  const record = useLoad((signal) => readRecord(each.conversation_id, signal), [each.conversation_id]);
  return html`<li><a href=${linkTo("thread", each.conversation_id)}>${record.data ? titleOf(record.data) : "Conversation"}</a>
    <span class="muted">${plural(each.messages, "message")}, last used ${shortDate(each.last_activity)} · goes ${shortDate(each.expires_at)} · ${each.why}</span></li>`;
}

/** @param {{ onRestored: () => void }} props */
function Archives({ onRestored }) {
  const found = useLoad((signal) => (session.access?.archives ? get("v1/archives", {}, signal) : Promise.resolve({ archives: [] })), [session.owner]);
  async function restore(/** @type {string} */ id) {
    try {
      await post(`v1/archives/${encodeURIComponent(id)}/restore`);
      toast("Restored.");
      onRestored();
      found.reload();
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }
  const list = found.data?.archives ?? [];
  return html`<section class="card"><h2>Archive</h2>
    ${!session.access?.archives ? html`<p class="muted">This server has no archive. Start it with <code>AFORESAID_ARCHIVE_FOLDER=some/folder</code> to put away old conversations unchanged.</p>`
      : !list.length && html`<p class="muted">Nothing is archived. Archive a conversation in its details; it leaves the list and can be restored unchanged.</p>`}
    <ul class="plain lines">${list.map((/** @type {any} */ each) => html`<li key=${each.conversation_id}><span>${plural(each.messages, "message")}, last used ${shortDate(each.last_activity)} <span class="muted">${size(each.size)}</span></span>
      ${may("write") && html`<${Button} onClick=${() => restore(each.conversation_id)}>Restore<//>`}</li>`)}</ul>
  </section>`;
}

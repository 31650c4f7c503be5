// The record of a conversation beside its messages.
import { html, useState } from "../lib/html.js";
import { call, conversationPath, get, post } from "../lib/api.js";
import { capital, shortTime } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { go, linkTo } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { BranchTree } from "./branches.js";
import { ClientPicker } from "./client_picker.js";
import { Confirm, toast } from "./dialog.js";
import { Links } from "./links.js";
import { RecordEditor } from "./record_editor.js";
import { Button, Time } from "./ui.js";

/** @param {{ record: Record<string, any>, onRecord: (record: any) => void, onClose: () => void, children?: any }} props */
export function ThreadSide({ record, onRecord, onClose, children }) {
  const lifetime = useLoad((signal) => get(`${conversationPath(record.id)}/lifetime`, {}, signal), [record.id, record.revision]);
  return html`<aside class="side" aria-label="Details">
    <header class="side-head"><h2>Details</h2><${Button} kind="quiet" icon="close" label="Close details" onClick=${onClose} /></header>
    <${RecordEditor} record=${record} onSaved=${onRecord} withAssignee=${false} />
    ${children}
    <${ClientPicker} record=${record} onRecord=${onRecord} />
    ${!session.access?.participant && html`<${BranchTree} record=${record} /><${Links} record=${record} />`}
    <dl class="facts">
      <dt>Channel</dt><dd>${capital(record.channel)}</dd>
      <dt>Started</dt><dd><${Time} at=${record.created_at} /></dd>
      <dt>Last message</dt><dd>${record.last_message_at ? html`<${Time} at=${record.last_message_at} />` : "None"}</dd>
      <dt>Kept</dt><dd>${record.expires_at ? `Until ${shortTime(record.expires_at)}` : "Forever"}${lifetime.data && html`<br /><span class="muted">${lifetime.data.why}</span>`}</dd>
      <dt>Id</dt><dd><code class="id">${record.id}</code></dd>
    </dl>
    ${may("write") && html`<${Removal} record=${record} />`}
  </aside>`;
}

/** @param {{ record: Record<string, any> }} props */
function Removal({ record }) {
  const [asking, setAsking] = useState("");
  /** @param {() => Promise<any>} act @param {string} done */
  async function run(act, done) {
    try {
      await act();
      toast(done);
      go("conversations");
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
      setAsking("");
    }
  }
  const path = conversationPath(record.id);
  return html`<div class="removal">
    ${session.access?.archives && html`<${Button} onClick=${() => run(() => post(`${path}/archive`), "Archived. Restore it on the Privacy page.")}>Archive<//>`}
    <${Button} onClick=${() => setAsking("delete")}>Delete<//>
    ${may("admin") && html`<${Button} kind="danger" onClick=${() => setAsking("erase")}>Erase<//>`}
    <p class="hint">Erasing also removes archives, copies and index entries, and gives a receipt. <a href=${linkTo("privacy")}>More about privacy</a></p>
    ${asking === "delete" && html`<${Confirm} title="Delete this conversation?" action="Delete" onClose=${() => setAsking("")}
      onConfirm=${() => run(() => call("DELETE", path), "Deleted.")}><p>Its messages are removed, except those that its branches share. This cannot be undone.</p><//>`}
    ${asking === "erase" && html`<${Confirm} title="Erase this conversation?" action="Erase for good" word="erase" onClose=${() => setAsking("")}
      onConfirm=${() => run(async () => sessionStorage.setItem("aforesaid.receipt", JSON.stringify(await post(`${path}/erase`))), "Erased. The receipt is on the Privacy page.")}>
      <p>Everything about it is removed permanently: messages, summaries, index entries, archives, spooled copies. Its branches go with it, because they show the same words.</p><//>`}
  </div>`;
}

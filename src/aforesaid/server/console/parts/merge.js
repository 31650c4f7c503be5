// Bring what was said in a branch into another conversation. On a conflict nothing is stored, and the reason is shown.
import { html, useState } from "../lib/html.js";
import { conversationPath, post } from "../lib/api.js";
import { capital, plural, titleOf } from "../lib/format.js";
import { asProblem } from "../lib/hooks.js";
import { linkTo } from "../lib/router.js";
import { Dialog } from "./dialog.js";
import { Button, Field, ProblemNote } from "./ui.js";

const WAYS = /** @type {[string, string, string][]} */ ([
  ["append", "At the end", "The branch's messages follow, with the present time."],
  ["interleave", "By time", "Whole turns go between whole turns, in the order in which they were said."],
  ["summary", "As a summary", "One message with your words; empty: the server's summarizer writes it."],
  ["adopt", "Take the branch's course", "With the original times. Only if nothing was said here since the fork."],
]);

/**
 * @param {{ into: Record<string, any>, branch: Record<string, any>, differences: { field: string, here: any, there: any }[], onClose: () => void, onMerged: () => void }} props
 */
export function Merge({ into, branch, differences, onClose, onMerged }) {
  const [how, setHow] = useState("append");
  const [summary, setSummary] = useState("");
  const [fields, setFields] = useState(/** @type {string[]} */ ([]));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [outcome, setOutcome] = useState(/** @type {any} */ (null));

  async function merge() {
    setBusy(true);
    setProblem(null);
    try {
      setOutcome(await post(`${conversationPath(into.id)}/merge`, { branch_id: branch.id, how, fields, ...(how === "summary" && summary.trim() ? { summary: summary.trim() } : {}) }));
      onMerged();
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  if (outcome) return html`<${Dialog} title="Merged" onClose=${onClose}><${Report} outcome=${outcome} /><div class="dialog-actions"><${Button} onClick=${onClose}>Close<//><a class="button primary" href=${linkTo("thread", into.id)}>Open the conversation</a></div><//>`;
  return html`<${Dialog} title="Merge" onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (!busy) void merge(); }}>
      <p dir="auto">What was said in <strong>${titleOf(branch)}</strong> comes into <strong>${titleOf(into)}</strong>. The branch stays as it is. A repeated merge brings only what is new.</p>
      <fieldset class="ways"><legend>How</legend>${WAYS.map(([value, title, hint]) => html`<label key=${value} class="way"><input type="radio" name="how" value=${value} checked=${how === value} onChange=${() => setHow(value)} /><span><strong>${title}</strong><span class="hint">${hint}</span></span></label>`)}</fieldset>
      ${how === "summary" && html`<${Field} label="Summary">${(/** @type {string} */ id) => html`<textarea id=${id} rows="3" dir="auto" value=${summary} onInput=${(/** @type {any} */ event) => setSummary(event.target.value)}></textarea>`}<//>`}
      ${differences.length > 0 && html`<fieldset class="ways"><legend>Take from the branch</legend>${differences.map((each) => html`<label key=${each.field} class="check"><input type="checkbox" checked=${fields.includes(each.field)}
        onChange=${(/** @type {any} */ event) => setFields(event.target.checked ? [...fields, each.field] : fields.filter((one) => one !== each.field))} /><span>${capital(each.field.replaceAll("_", " "))}: ${(Array.isArray(each.there) ? each.there.join(", ") : each.there) || "none"}</span></label>`)}</fieldset>`}
      ${problem?.status === 409 ? html`<div class="note warn" role="alert"><div><p><strong>Conflict: nothing was stored.</strong> ${capital(problem.message)}</p><p class="next">Choose another way above, for example “At the end”.</p></div></div>` : html`<${ProblemNote} problem=${problem} />`}
      <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//><button type="submit" class="button primary" disabled=${busy}>Merge</button></div>
    </form><//>`;
}

/** @param {{ outcome: { added: number, known: number, left_out: number, differences: { field: string }[] } }} props */
function Report({ outcome }) {
  return html`<p role="status">${plural(outcome.added, "message")} added, ${outcome.known} known already${outcome.left_out ? `, ${outcome.left_out} left out because they cannot be read or were redacted` : ""}.</p>
    ${outcome.differences.length > 0 && html`<p class="muted">Still different: ${outcome.differences.map((each) => each.field.replaceAll("_", " ")).join(", ")}.</p>`}`;
}

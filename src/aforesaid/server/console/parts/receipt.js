// The receipt of an erasure: what was removed, in numbers, to keep.
import { html, useEffect, useRef } from "../lib/html.js";
import { download } from "../lib/files.js";
import { capital, fullTime, number } from "../lib/format.js";
import { Button } from "./ui.js";

/** @param {{ receipt: any, onClose: () => void }} props */
export function Receipt({ receipt, onClose }) {
  const section = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => section.current?.scrollIntoView({ block: "nearest" }), [receipt]);
  const counts = Object.entries(receipt.erased ?? {}).filter(([, count]) => count);
  const save = () => download(new Blob([JSON.stringify(receipt, null, 2)], { type: "application/json" }), "aforesaid-receipt.json");
  return html`<section ref=${section} class="card receipt" role="status"><div class="row spread"><h2>Receipt of the erasure</h2>
      <span class="row"><${Button} icon="download" onClick=${save}>Save<//><${Button} kind="quiet" icon="close" label="Close the receipt" onClick=${onClose} /></span></div>
    <p class="muted">${receipt.conversation_id ? "One conversation" : "Everything of this owner"}${receipt.finished_at ? `, finished ${fullTime(receipt.finished_at)}` : ""}</p>
    <table><thead><tr><th>Removed</th><th>Count</th></tr></thead><tbody>
      ${counts.map(([name, count]) => html`<tr key=${name}><td>${capital(name.replaceAll("_", " "))}</td><td>${number(/** @type {number} */ (count))}</td></tr>`)}
      ${!counts.length && html`<tr><td colspan="2">There was nothing to remove.</td></tr>`}</tbody></table>
  </section>`;
}

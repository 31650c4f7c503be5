// Ask for a key. It stays in this tab and travels in headers only.
import { html, useState } from "../lib/html.js";
import { signIn } from "../lib/session.js";
import { ProblemNote, TextField } from "./ui.js";

/** @param {{ problem: import("../lib/api.js").Problem | null }} props */
export function SignIn({ problem }) {
  const [key, setKey] = useState("");
  const [owner, setOwner] = useState("");
  return html`<main class="alone sign-in">
    <div class="brand"><span class="brand-mark" aria-hidden="true"><i></i><i></i><i></i></span>Aforesaid</div>
    <h1>Sign in</h1>
    <p>This server needs a key. Create one where the server runs:</p>
    <pre><code>aforesaid keys create --owner YOU --scope admin</code></pre>
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (key.trim()) signIn(key.trim(), owner.trim() || null); }}>
      <${TextField} label="Key" type="password" value=${key} onInput=${setKey} autofocus spellcheck=${false} placeholder="ak_…" />
      <${TextField} label="Owner" value=${owner} onInput=${setOwner} hint="Only for keys that open the data of several owners" />
      <button type="submit" class="button primary" disabled=${!key.trim()}>Sign in</button>
    </form>
    <p class="hint">The key stays in this tab and is forgotten when you close it. You can also open the console with the key behind the address: <code>#key=…</code></p>
  </main>`;
}

// The retention rules of an owner: how long conversations stay after their last activity.
import { html, useState } from "../lib/html.js";
import { call } from "../lib/api.js";
import { capital, duration, plural } from "../lib/format.js";
import { asProblem } from "../lib/hooks.js";
import { CHANNELS } from "../lib/records.js";
import { may } from "../lib/session.js";
import { toast } from "./dialog.js";
import { Button, SelectField, TextField } from "./ui.js";

const SPANS = /** @type {[string, string][]} */ ([["86400", "1 day"], ["604800", "1 week"], ["2592000", "30 days"], ["7776000", "90 days"], ["31536000", "1 year"], ["forever", "Forever"]]);

/** @param {{ rules: any, onSaved: () => void }} props */
export function RetentionEditor({ rules, onSaved }) {
  const [draft, setDraft] = useState(rules);
  const [tag, setTag] = useState("");
  const isChanged = JSON.stringify(draft) !== JSON.stringify(rules);
  async function save() {
    try {
      const { owner, channels = {}, tags = {} } = draft;
      const outcome = await call("PUT", "v1/retention", { body: { ...(owner === undefined ? {} : { owner }), channels, tags } });
      toast(`Saved. ${plural(outcome.changed, "conversation")} got another lifetime.`, { undo: async () => { await call("PUT", "v1/retention", { body: { ...(rules.owner === undefined ? {} : { owner: rules.owner }), channels: rules.channels ?? {}, tags: rules.tags ?? {} } }); onSaved(); } });
      onSaved();
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }
  const locked = !may("admin");
  const setIn = (/** @type {"channels" | "tags"} */ kind, /** @type {string} */ name) => (/** @type {string} */ value) => {
    const { [name]: _, ...rest } = draft[kind] ?? {};
    setDraft({ ...draft, [kind]: value === "" ? rest : { ...rest, [name]: parsed(value) } });
  };
  const { owner: __, ...withoutOwner } = draft;
  return html`<form class="stack" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (isChanged) void save(); }}>
    <${Span} label="Conversations stay" value=${draft.owner} onChange=${(/** @type {string} */ value) => setDraft(value === "" ? withoutOwner : { ...draft, owner: parsed(value) })} any="As the server has it" locked=${locked} />
    <div class="pair">${CHANNELS.map((name) => html`<${Span} key=${name} label=${capital(name)} value=${draft.channels?.[name]} onChange=${setIn("channels", name)} any="Same" locked=${locked} />`)}
      ${Object.keys(draft.tags ?? {}).map((name) => html`<${Span} key=${name} label=${`Tag “${name}”`} value=${draft.tags[name]} onChange=${setIn("tags", name)} any="Remove the rule" locked=${locked} />`)}</div>
    ${!locked && html`<div class="row end-aligned"><${TextField} label="Rule for a tag" value=${tag} onInput=${setTag} placeholder="legal" />
      <${Button} disabled=${!tag.trim()} onClick=${() => { setIn("tags", tag.trim())("forever"); setTag(""); }}>Add<//></div>
      <div class="row"><button type="submit" class="button primary" disabled=${!isChanged}>Save rules</button><${Button} disabled=${!isChanged} onClick=${() => setDraft(rules)}>Cancel<//></div>`}
  </form>`;
}

/** @param {{ label: string, value: number | null | undefined, onChange: (value: string) => void, any: string, locked: boolean }} props */
function Span({ label, value, onChange, any, locked }) {
  const shown = value === undefined ? "" : value === null ? "forever" : String(value);
  const options = shown && !SPANS.some(([key]) => key === shown) ? [...SPANS, /** @type {[string, string]} */ ([shown, duration(value)])] : SPANS;
  return html`<${SelectField} label=${label} value=${shown} options=${options} onChange=${onChange} any=${any} disabled=${locked} />`;
}

/** @param {string} value */
const parsed = (value) => (value === "forever" ? null : Number(value));

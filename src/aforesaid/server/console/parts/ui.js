// Small shared parts: buttons, fields, chips, states of a page, times.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ago, capital, fullTime } from "../lib/format.js";
import { useSlow } from "../lib/hooks.js";
import { Icon } from "./icons.js";

/** @param {{ kind?: string, icon?: string, label?: string, children?: any, [name: string]: any }} props */
export function Button({ kind = "", icon, label, children, class: more = "", ...rest }) {
  const only = icon && !children ? " icon-only" : "";
  return html`<button type="button" class=${`button ${kind}${only} ${more}`} aria-label=${label} title=${label} ...${rest}>
    ${icon && html`<${Icon} name=${icon} />`}${children && html`<span>${children}</span>`}
  </button>`;
}

/** @param {{ href: string, kind?: string, icon?: string, children?: any, [name: string]: any }} props */
export function LinkButton({ href, kind = "", icon, children, ...rest }) {
  return html`<a class=${`button ${kind}`} href=${href} ...${rest}>${icon && html`<${Icon} name=${icon} />`}<span>${children}</span></a>`;
}

let fields = 0;
/** An id that is unique on the page. */
export function useId() {
  const [id] = useState(() => `f${(fields += 1)}`);
  return id;
}

/**
 * A labelled field. `children` gets the id of the control.
 * @param {{ label: string, hint?: string, class?: string, children: (id: string, hint: string | undefined) => any }} props
 */
export function Field({ label, hint, class: more = "", children }) {
  const id = useId();
  const described = hint ? `${id}-hint` : undefined;
  return html`<div class=${`field ${more}`}>
    <label for=${id}>${label}</label>
    ${children(id, described)}
    ${hint && html`<p class="hint" id=${described}>${hint}</p>`}
  </div>`;
}

/**
 * @param {{ label: string, value: string, options: (string | [string, string])[], onChange: (value: string) => void, hint?: string, any?: string, disabled?: boolean }} props
 */
export function SelectField({ label, value, options, onChange, hint, any, disabled }) {
  return html`<${Field} label=${label} hint=${hint}>${(/** @type {string} */ id, /** @type {string} */ described) => html`
    <select id=${id} aria-describedby=${described} value=${value} disabled=${disabled}
      onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
      ${any !== undefined && html`<option value="" selected=${value === ""}>${any}</option>`}
      ${options.map((option) => {
        const [key, text] = Array.isArray(option) ? option : [option, capital(option)];
        return html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`;
      })}
    </select>`}<//>`;
}

/**
 * @param {{ label: string, value: string, onInput: (value: string) => void, hint?: string, type?: string, class?: string, [name: string]: any }} props
 */
export function TextField({ label, value, onInput, hint, type = "text", class: more, ...rest }) {
  return html`<${Field} label=${label} hint=${hint} class=${more}>${(/** @type {string} */ id, /** @type {string} */ described) => html`
    <input id=${id} type=${type} value=${value} aria-describedby=${described} autocomplete="off" ...${rest}
      onInput=${(/** @type {any} */ event) => onInput(event.target.value)} />`}<//>`;
}

/** @param {{ kind?: string, icon?: string, children?: any, title?: string }} props */
export function Chip({ kind = "", icon, children, title }) {
  return html`<span class=${`chip ${kind}`} title=${title}>${icon && html`<${Icon} name=${icon} />`}${children}</span>`;
}

/** A relative time with the exact one as a title; renewed every half minute. @param {{ at: string | null | undefined }} props */
export function Time({ at }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 30_000);
    return () => clearInterval(timer);
  }, []);
  return at ? html`<time datetime=${at} title=${fullTime(at)}>${ago(at)}</time>` : null;
}

/**
 * The heading of a page. It takes the focus on navigation, so that screen readers announce the page.
 * @param {{ title: string, lead?: any, back?: string, children?: any }} props
 */
export function PageHead({ title, lead, back, children }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    document.title = `${title} · Aforesaid`;
  }, [title]);
  return html`<header class="page-head">
    ${back && html`<a class="button quiet icon-only" href=${back} aria-label="Back"><${Icon} name="back" /></a>`}
    <div class="page-title"><h1 tabindex="-1" ref=${heading} title=${title}>${title}</h1>${lead && html`<p class="lead">${lead}</p>`}</div>
    <div class="page-actions">${children}</div>
  </header>`;
}

/** What a page without data says: what would be here, and how it gets there. @param {{ icon: string, title: string, children?: any }} props */
export function Empty({ icon, title, children }) {
  return html`<section class="empty"><div class="empty-icon"><${Icon} name=${icon} /></div><h2>${title}</h2>${children}</section>`;
}

/**
 * An error in words with a next step.
 * @param {{ problem: import("../lib/api.js").Problem | null, retry?: () => void }} props
 */
export function ProblemNote({ problem, retry }) {
  if (!problem) return null;
  return html`<div class="note bad" role="alert"><${Icon} name="warn" />
    <div><p>${capital(problem.message)}</p><p class="next">${nextStep(problem)}</p></div>
    ${retry && html`<${Button} onClick=${retry}>Try again<//>`}
  </div>`;
}

/** @param {import("../lib/api.js").Problem} problem */
export function nextStep(problem) {
  if (problem.status === 0) return "Check that the server runs and that you are connected; the console keeps what you typed.";
  if (problem.status === 401) return "Sign in again with a valid key.";
  if (problem.status === 403) return "Use a key with the right this action needs, or ask the person who runs the server.";
  if (problem.status === 404) return "It may have been deleted or have expired. Go back to the list.";
  if (problem.isConflict) return "Someone changed it meanwhile. Load the current state and apply your change again.";
  if (problem.status === 413) return "Send less at once.";
  if (problem.status === 422 || problem.status === 400) return "Correct the value and try again.";
  if (problem.status === 429) return "Wait a moment and try again.";
  if (problem.status >= 500) return "The server has trouble now. Try again in a moment; the Health page says more.";
  return "Reload the page and try again.";
}

/** Shown only when loading takes longer than 200 ms. @param {{ on: boolean }} props */
export function Loading({ on }) {
  return useSlow(on) ? html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading…</p>` : null;
}

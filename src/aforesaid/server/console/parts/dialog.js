// Dialogs and short messages above the page.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { Button, TextField } from "./ui.js";
import { Icon } from "./icons.js";

/** @param {{ title: string, onClose: () => void, children?: any, class?: string }} props */
export function Dialog({ title, onClose, children, class: more = "" }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return html`<dialog ref=${element} class=${`dialog ${more}`} aria-label=${title}
    onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); onClose(); }}
    onClick=${(/** @type {MouseEvent} */ event) => event.target === element.current && onClose()}>
    <div class="dialog-body">
      <header class="dialog-head"><h2>${title}</h2><${Button} kind="quiet" icon="close" label="Close" onClick=${onClose} /></header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * Ask before something that cannot be undone. With `word`, the user types it.
 * @param {{ title: string, action: string, word?: string, onConfirm: () => void, onClose: () => void, busy?: boolean, children?: any }} props
 */
export function Confirm({ title, action, word, onConfirm, onClose, busy = false, children }) {
  const [typed, setTyped] = useState("");
  const ready = (!word || typed.trim() === word) && !busy;
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (ready) onConfirm(); }}>
      ${children}
      ${word && html`<${TextField} label=${`Type “${word}” to confirm`} value=${typed} onInput=${setTyped} autofocus />`}
      <div class="dialog-actions">
        <${Button} onClick=${onClose}>Cancel<//>
        <button type="submit" class="button danger" disabled=${!ready}>${action}</button>
      </div>
    </form>
  <//>`;
}

/** @typedef {{ id: number, text: string, bad?: boolean, undo?: () => void }} Toast */
/** @type {Toast[]} */
let toasts = [];
let count = 0;
/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * Show a message for a while. With `undo`, it has a button that reverts the action.
 * @param {string} text
 * @param {{ bad?: boolean, undo?: () => void }} [options]
 */
export function toast(text, options = {}) {
  const made = { id: (count += 1), text, ...options };
  toasts = [...toasts.slice(-2), made];
  tell();
  setTimeout(() => dismiss(made.id), options.undo || options.bad ? 10_000 : 5_000);
}

/** @param {number} id */
function dismiss(id) {
  toasts = toasts.filter((each) => each.id !== id);
  tell();
}

function tell() {
  for (const listener of listeners) listener();
}

export function Toasts() {
  const [, update] = useState(0);
  useEffect(() => {
    const listen = () => update((round) => round + 1);
    listeners.add(listen);
    return () => { listeners.delete(listen); };
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.map((each) => html`<div key=${each.id} class=${`toast ${each.bad ? "bad" : ""}`}>
      <${Icon} name=${each.bad ? "warn" : "check"} /><span>${each.text}</span>
      ${each.undo && html`<${Button} kind="quiet" onClick=${() => { each.undo?.(); dismiss(each.id); }}>Undo<//>`}
      <${Button} kind="quiet" icon="close" label="Dismiss" onClick=${() => dismiss(each.id)} />
    </div>`)}
  </div>`;
}

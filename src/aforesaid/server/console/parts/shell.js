// The frame of every page: navigation, owner, keyboard help.
import { html, useEffect, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { useKeys, useLoad } from "../lib/hooks.js";
import { go, linkTo } from "../lib/router.js";
import { chooseOwner, may, session, signOut } from "../lib/session.js";
import { isDark, toggleTheme } from "../lib/theme.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icons.js";
import { Button, SelectField } from "./ui.js";

/** @type {[string, string, string][]} */
const PAGES = [
  ["conversations", "Conversations", "1"],
  ["search", "Search", "2"],
  ["memory", "Memory", "3"],
  ["clients", "Clients", "4"],
  ["notifications", "Notifications", "5"],
  ["insights", "Insights", "6"],
  ["privacy", "Privacy", "7"],
  ["health", "Health", "8"],
];

/** @param {{ page: string, children?: any }} props */
export function Shell({ page, children }) {
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const [dark, setDark] = useState(isDark());
  useEffect(() => setMenu(false), [page]);
  useKeys({
    "?": () => setHelp(true),
    "/": () => focusSearch(page),
    ...Object.fromEntries(PAGES.map(([name, , key]) => [key, () => go(name)])),
  });
  const current = { thread: "conversations", context: "conversations", compare: "conversations" }[page] ?? page;
  return html`<div class=${`shell ${menu ? "menu-open" : ""}`}>
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
    <header class="top"><${Button} kind="quiet" icon="menu" label="Menu" aria-expanded=${menu} onClick=${() => setMenu(!menu)} /><${Brand} /></header>
    <nav class="nav" aria-label="Pages">
      <${Brand} />
      <ul>${PAGES.map(([name, title]) => html`<li key=${name}><a href=${linkTo(name)} aria-current=${current === name ? "page" : undefined}
        onClick=${() => setMenu(false)}><${Icon} name=${name} /><span>${title}</span></a></li>`)}</ul>
      <div class="nav-foot">
        <${Owner} />
        <div class="nav-tools">
          <${Button} kind="quiet" icon=${dark ? "sun" : "moon"} label=${dark ? "Light colours" : "Dark colours"} onClick=${() => { toggleTheme(); setDark(isDark()); }} />
          <${Button} kind="quiet" icon="help" label="Keyboard shortcuts" onClick=${() => setHelp(true)} />
          ${session.key && html`<${Button} kind="quiet" icon="out" label="Sign out" onClick=${signOut} />`}
        </div>
        <p class="version"><a href="../">Server</a> · <a href="../schema">API</a> · ${session.access?.version}</p>
      </div>
    </nav>
    <button class="nav-veil" tabindex="-1" aria-hidden="true" onClick=${() => setMenu(false)}></button>
    <main id="main" tabindex="-1">${children}</main>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
  </div>`;
}

const Brand = () => html`<a class="brand" href=${linkTo("conversations")}><span class="brand-mark" aria-hidden="true"><i></i><i></i><i></i></span>Aforesaid</a>`;

/** Whose data is shown. With rights to several owners, another one can be chosen. */
function Owner() {
  const { access } = session;
  const several = access !== null && (access.owners === null || access.owners.length > 1);
  const owners = useLoad(async (signal) => (several ? (await get("v1/owners", {}, signal)).owners : []), [several]);
  const shown = session.owner ?? access?.owner ?? "";
  const all = [...new Set([...(shown ? [shown] : []), ...(owners.data ?? [])])];
  const rights = { read: "may read", write: "may read and write", admin: "may do everything" }[access?.scope ?? "read"];
  if (all.length < 2) return html`<p class="owner"><span class="label">Data of</span><strong>${shown || "no owner"}</strong><span class="muted">${may("admin") && access?.without_key ? "no key needed" : rights}</span></p>`;
  return html`<div class="owner"><${SelectField} label="Data of" value=${shown} options=${all.map((each) => [each, each])} onChange=${chooseOwner} hint=${rights} /></div>`;
}

/** @param {string} page */
function focusSearch(page) {
  const field = /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"));
  if (field && page !== "conversations") field.focus();
  else go("search");
}

const KEYS = [
  ["/", "Search"], ["j, k", "Next, previous conversation"], ["Enter", "Open"], ["e", "Edit the selected conversation"],
  ["n", "New conversation"], ["r", "Reply in a thread"], ["1 … 8", "Go to a page"], ["?", "This help"], ["Esc", "Close"],
];

/** @param {{ onClose: () => void }} props */
function Help({ onClose }) {
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    <dl class="keys">${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
  <//>`;
}

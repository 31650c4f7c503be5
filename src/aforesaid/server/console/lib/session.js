// Who is signed in: the key and the owner. Both stay in this tab's session storage, never in a cookie or a query.
import { forgetDrafts } from "./drafts.js";

/** @typedef {{ key: string | null, owner: string | null }} Credentials */
/**
 * @typedef {object} Access What `GET /v1/access` returns.
 * @property {string} name
 * @property {"read" | "write" | "admin"} scope
 * @property {string[] | null} owners
 * @property {string | null} owner
 * @property {string | null} participant
 * @property {boolean} without_key
 * @property {string} version
 * @property {boolean} voice
 * @property {boolean} audit
 * @property {boolean} archives
 */

const KEY = "aforesaid.key";
const OWNER = "aforesaid.owner";
const TAB = "aforesaid.tab";

/** @type {Set<() => void>} */
const listeners = new Set();

/** @type {Credentials & { access: Access | null }} */
export const session = {
  key: sessionStorage.getItem(KEY),
  owner: sessionStorage.getItem(OWNER),
  access: null,
};

/** Take a key out of the address (`#key=…&owner=…`), so that it is neither shown nor kept in the history. */
export function takeKeyFromAddress() {
  const fragment = location.hash.slice(1);
  if (!/(^|&)(key|owner)=/.test(fragment) || fragment.startsWith("/")) return;
  const given = new URLSearchParams(fragment);
  history.replaceState(null, "", location.pathname + "#/");
  signIn(given.get("key"), given.get("owner"));
}

/**
 * @param {string | null} key
 * @param {string | null} owner
 */
export function signIn(key, owner) {
  session.key = key || null;
  session.access = null;
  keep(KEY, session.key);
  chooseOwner(owner);
}

/** @param {string | null} owner */
export function chooseOwner(owner) {
  session.owner = owner || null;
  keep(OWNER, session.owner);
  notify();
}

export function signOut() {
  forgetDrafts();
  signIn(null, null);
}

/** @param {Access} access */
export function setAccess(access) {
  session.access = access;
  if (session.owner === null && access.owner === null && access.owners?.length) session.owner = access.owners[0];
  notify();
}

/**
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** @param {"write" | "admin"} scope */
export function may(scope) {
  const given = session.access?.scope;
  return given === "admin" || (scope === "write" && given === "write");
}

/** The id of this tab: its session on the server, so that an answer in progress continues after a reconnect. */
export function tabId() {
  const known = sessionStorage.getItem(TAB);
  if (known) return known;
  const made = `console-${newId()}`;
  sessionStorage.setItem(TAB, made);
  return made;
}

/** A random id. `crypto.randomUUID` exists on https and localhost only. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function notify() {
  for (const listener of [...listeners]) listener();
}

/**
 * @param {string} name
 * @param {string | null} value
 */
function keep(name, value) {
  if (value === null) sessionStorage.removeItem(name);
  else sessionStorage.setItem(name, value);
}

// Requests to the public HTTP interface. Addresses are relative to the page, so any path prefix works.
import { session } from "./session.js";

export const base = new URL("..", document.baseURI);

/** A refused request, in the server's words (RFC 9457), or a server that cannot be reached. */
export class Problem extends Error {
  /**
   * @param {number} status 0 if there was no response.
   * @param {Record<string, any>} document
   */
  constructor(status, document) {
    super(document.detail || document.title || "The request failed.");
    this.status = status;
    this.title = document.title ?? "";
    this.kind = String(document.type ?? "").replace("urn:aforesaid:problem:", "");
    this.document = document;
  }

  get isAccess() {
    return this.status === 401;
  }

  get isConflict() {
    return this.status === 412 || this.status === 409;
  }
}

/**
 * @typedef {object} Options
 * @property {any} [body] Sent as JSON.
 * @property {BodyInit} [raw] Sent unchanged, with `media`.
 * @property {string} [media]
 * @property {Record<string, any>} [query]
 * @property {number | null} [revision] Sent as `If-Match`.
 * @property {AbortSignal} [signal]
 */

/**
 * Send a request and return the response. Raises `Problem`.
 * @param {string} method
 * @param {string} path For example `v1/conversations`.
 * @param {Options} [options]
 */
export async function request(method, path, options = {}) {
  const headers = credentials();
  if (options.body !== undefined) headers.set("content-type", "application/json");
  if (options.media) headers.set("content-type", options.media);
  if (options.revision != null) headers.set("if-match", `"${options.revision}"`);
  const init = {
    method,
    headers,
    body: options.body === undefined ? options.raw : JSON.stringify(options.body),
    signal: options.signal,
    /** @type {RequestCache} */ cache: "no-store",
    /** @type {RequestCredentials} */ credentials: "omit",
  };
  let response;
  try {
    response = await fetch(address(path, options.query), init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, { title: "The server cannot be reached.", detail: "The server cannot be reached." });
  }
  if (!response.ok) throw new Problem(response.status, await problemOf(response));
  return response;
}

/**
 * Send a request and return the decoded JSON; null for a response without a body.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function call(method, path, options) {
  const response = await request(method, path, options);
  return response.status === 204 ? null : response.json();
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 */
export const get = (path, query, signal) => call("GET", path, { query, signal });

/**
 * @param {string} path
 * @param {any} [body]
 */
export const post = (path, body) => call("POST", path, body === undefined ? {} : { body });

/** @param {string} id */
export const conversationPath = (id) => `v1/conversations/${encodeURIComponent(id)}`;

export function credentials() {
  const headers = new Headers();
  if (session.key) headers.set("authorization", `Bearer ${session.key}`);
  if (session.owner) headers.set("aforesaid-owner", encodeURIComponent(session.owner));
  return headers;
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 */
function address(path, query = {}) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") url.searchParams.append(name, String(each));
    }
  }
  return url;
}

/** @param {Response} response */
async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    return { title: `The server answered ${response.status}.` };
  }
}

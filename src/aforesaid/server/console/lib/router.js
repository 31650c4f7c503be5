// The page is in the fragment: no server rewrites, and nothing about it reaches a log.
import { useEffect, useState } from "./html.js";

/** @typedef {{ page: string, id: string, query: URLSearchParams }} Place */

/** @returns {Place} */
export function currentPlace() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", id = ""] = path.split("/");
  return { page: page || "conversations", id: decode(id), query: new URLSearchParams(query) };
}

/** Re-render whenever the place changes. */
export function usePlace() {
  const [place, setPlace] = useState(currentPlace);
  useEffect(() => {
    const update = () => setPlace(currentPlace());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return place;
}

/**
 * @param {string} page
 * @param {string} [id]
 * @param {Record<string, any>} [query]
 */
export function linkTo(page, id = "", query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}${search ? `?${search}` : ""}`;
}

/**
 * @param {string} page
 * @param {string} [id]
 * @param {Record<string, any>} [query]
 */
export function go(page, id, query) {
  location.hash = linkTo(page, id, query);
}

/**
 * Change the query of the current place without a new entry in the history.
 * @param {Record<string, any>} query
 */
export function replaceQuery(query) {
  const { page, id } = currentPlace();
  history.replaceState(null, "", linkTo(page, id, query));
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Loading data, waiting without flicker, and keyboard shortcuts.
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { Problem } from "./api.js";

/**
 * Load data when `key` changes. Keeps what was shown until the new data is there.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {unknown[]} key
 * @returns {{ data: T | null, problem: Problem | null, loading: boolean, reload: () => void, set: (data: T) => void }}
 */
export function useLoad(load, key) {
  const [state, setState] = useState(/** @type {{data: T | null, problem: Problem | null, loading: boolean}} */ (
    { data: null, problem: null, loading: true }));
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    load(abort.signal).then(
      (data) => abort.signal.aborted || setState({ data, problem: null, loading: false }),
      (error) => abort.signal.aborted || setState((before) => ({ ...before, problem: asProblem(error), loading: false })),
    );
    return () => abort.abort();
  }, [...key, round]);
  const reload = useCallback(() => setRound((count) => count + 1), []);
  const set = useCallback((/** @type {T} */ data) => setState({ data, problem: null, loading: false }), []);
  return { ...state, reload, set };
}

/**
 * True once `waiting` has lasted 200 ms: shorter waits show nothing.
 * @param {boolean} waiting
 */
export function useSlow(waiting) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    setSlow(false);
    if (!waiting) return undefined;
    const timer = setTimeout(() => setSlow(true), 200);
    return () => clearTimeout(timer);
  }, [waiting]);
  return slow && waiting;
}

/**
 * Call `act` now and then while the page is visible.
 * @param {() => void} act
 * @param {number} milliseconds
 */
export function useEvery(act, milliseconds) {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && latest.current(), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}

/**
 * A value that follows `value` once it has rested for a moment.
 * @template T
 * @param {T} value
 */
export function useSettled(value, milliseconds = 250) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(() => value), milliseconds);
    return () => clearTimeout(timer);
  }, [typeof value === "object" ? JSON.stringify(value) : value]);
  return settled;
}

/**
 * Keyboard shortcuts outside of fields. Keys with Ctrl, Alt or Meta stay the browser's.
 * @param {Record<string, (event: KeyboardEvent) => void>} keys
 */
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const listen = (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
      const target = /** @type {HTMLElement} */ (event.target);
      if (target.closest("input, textarea, select, [contenteditable], dialog")) return;
      const act = latest.current[event.key];
      if (act) {
        event.preventDefault();
        act(event);
      }
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}

/** @param {unknown} error */
export function asProblem(error) {
  if (error instanceof Problem) return error;
  console.warn(error);
  return new Problem(-1, { title: "The console failed.", detail: "The console failed. Reload the page and try again." });
}

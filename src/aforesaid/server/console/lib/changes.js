// Changes of all conversations, as server-sent events read with fetch: an EventSource cannot send a key.
import { request } from "./api.js";

/** @typedef {{ conversation_id: string, revision: number | null }} Change */

/**
 * Watch until `signal` aborts. A hidden page holds no connection: browsers allow six per server.
 * @param {(change: Change) => void} onChange
 * @param {() => void} onGap Called when changes may have been missed.
 * @param {AbortSignal} signal
 */
export async function watchChanges(onChange, onGap, signal) {
  let pause = 500, first = true;
  while (!signal.aborted) {
    if (document.visibilityState === "hidden") await untilVisible(signal);
    if (!first) onGap();
    first = false;
    try {
      await readStream(onChange, signal);
      pause = 500;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 10_000);
    }
  }
}

/**
 * @param {(change: Change) => void} onChange
 * @param {AbortSignal} signal
 */
async function readStream(onChange, signal) {
  const abort = new AbortController();
  const stop = () => abort.abort();
  const hide = () => document.visibilityState === "hidden" && stop();
  signal.addEventListener("abort", stop);
  document.addEventListener("visibilitychange", hide);
  try {
    const response = await request("GET", "v1/changes", { signal: abort.signal });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
    let buffer = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      const events = buffer.split("\n\n");
      buffer = events.pop() ?? "";
      for (const event of events) if (event.startsWith("data: ")) onChange(JSON.parse(event.slice(6)));
    }
  } finally {
    signal.removeEventListener("abort", stop);
    document.removeEventListener("visibilitychange", hide);
  }
}

/** @param {AbortSignal} signal */
function untilVisible(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (document.visibilityState !== "visible" && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve(undefined);
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}

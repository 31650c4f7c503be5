// The microphone as 16-bit samples at 16 kHz, as the server's transcriber takes them.

const RATE = 16_000;

/** @typedef {{ rate: number, stop: () => void }} Recording */

/**
 * Start recording. Raises `DOMException` if the user refuses or there is no microphone.
 * @param {(chunk: ArrayBuffer) => void} onChunk
 * @param {(level: number) => void} onLevel From 0 to 1.
 * @returns {Promise<Recording>}
 */
export async function record(onChunk, onLevel) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } });
  const context = new AudioContext({ sampleRate: RATE });
  // A file of its own: a worklet from a blob would need a weaker content security policy.
  await context.audioWorklet.addModule(new URL("./recorder_worklet.js", import.meta.url));
  const node = new AudioWorkletNode(context, "recorder");
  node.port.onmessage = ({ data }) => {
    onLevel(data.level);
    onChunk(data.samples);
  };
  context.createMediaStreamSource(stream).connect(node);
  const stop = () => {
    node.port.onmessage = null;
    for (const track of stream.getTracks()) track.stop();
    void context.close();
  };
  return { rate: context.sampleRate, stop };
}

export const canRecord = () => "mediaDevices" in navigator && "AudioWorkletNode" in window;

/** Why recording did not start, with the next step. @param {unknown} error */
export function whyNot(error) {
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError") return "The browser does not allow the microphone here. Allow it in the address bar and try again.";
  if (name === "NotFoundError") return "No microphone was found. Connect one and try again.";
  return "The microphone cannot be used now. Close other programs that use it and try again.";
}

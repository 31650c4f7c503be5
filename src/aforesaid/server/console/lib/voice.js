// Speak answers aloud, sentence by sentence, and know how much was heard.

/** @typedef {{ cancel: () => number, heard: () => number }} Speech */

export const canSpeak = () => "speechSynthesis" in window && speechSynthesis.getVoices().length > 0;

/**
 * Read a text aloud. `cancel` stops and returns the number of characters that were heard.
 * @param {string} text
 * @param {(heard: number, complete: boolean) => void} onEnd
 * @returns {Speech | null}
 */
export function speak(text, onEnd) {
  if (!canSpeak()) return null;
  const said = new SpeechSynthesisUtterance(text);
  let heard = 0, ended = false;
  // The server counts characters, the browser counts UTF-16 units.
  said.onboundary = (event) => { heard = [...text.slice(0, event.charIndex)].length; };
  said.onend = () => finish(true);
  said.onerror = () => finish(false);
  const finish = (/** @type {boolean} */ complete) => {
    if (ended) return;
    ended = true;
    if (complete) heard = [...text].length;
    onEnd(heard, complete);
  };
  speechSynthesis.speak(said);
  return {
    heard: () => heard,
    cancel: () => {
      ended = true;
      speechSynthesis.cancel();
      return heard;
    },
  };
}

// A picture in a message: inside the message, or stored by the server next to it.
import { html, useEffect, useState } from "../lib/html.js";
import { conversationPath, request } from "../lib/api.js";

/**
 * A picture on another host is only named, because the console loads nothing from other hosts.
 * @param {{ part: import("../lib/content.js").Part, conversation: string }} props
 */
export function Picture({ part, conversation }) {
  if (part.blob) return html`<${StoredPicture} blob=${part.blob} conversation=${conversation} />`;
  if (/^data:image\/(png|jpeg|gif|webp);base64,/.test(part.text)) return html`<${Shown} address=${part.text} />`;
  return html`<p class="picture-note">Picture, not shown: ${part.text ? part.text.slice(0, 200) : "stored elsewhere"}</p>`;
}

/** The key travels in a header, so an address alone would not do. @param {{ blob: { sha256: string, media: string }, conversation: string }} props */
function StoredPicture({ blob, conversation }) {
  const [address, setAddress] = useState(/** @type {string | null} */ (null));
  const [missing, setMissing] = useState(false);
  useEffect(() => {
    const abort = new AbortController();
    let made = "";
    request("GET", `${conversationPath(conversation)}/images/${blob.sha256}`, { signal: abort.signal })
      .then((response) => response.arrayBuffer())
      .then((bytes) => {
        if (abort.signal.aborted) return;
        made = URL.createObjectURL(new Blob([bytes], { type: blob.media }));
        setAddress(made);
      }, () => abort.signal.aborted || setMissing(true));
    return () => {
      abort.abort();
      URL.revokeObjectURL(made);
    };
  }, [blob.sha256, conversation]);
  if (missing) return html`<p class="picture-note">Picture, not shown: the server does not have it.</p>`;
  return address ? html`<${Shown} address=${address} />` : html`<span class="picture waiting" aria-hidden="true"></span>`;
}

/** @param {{ address: string }} props */
const Shown = ({ address }) => html`<img class="picture" src=${address} alt="Picture in the message" loading="lazy" />`;

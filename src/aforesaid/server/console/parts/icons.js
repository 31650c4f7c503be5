// Icons as strokes on a grid of 24, in the colour of the text. Decoration only: names are in the text.
import { html } from "../lib/html.js";

/** @type {Record<string, string>} */
const PATHS = {
  conversations: "M4 5h16v11H9l-5 4z",
  search: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM15.5 15.5 20 20",
  clients: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.5-4 3-6 6.5-6s6 2 6.5 6M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14.3c2 .8 3.2 2.7 3.5 5.7",
  memory: "M6 3h12v18l-6-4-6 4zM9 8h6M9 11.5h6",
  privacy: "M12 3l7.5 3v5.5c0 4.5-3 7.7-7.5 9.5-4.5-1.800-7.500-5-7.500-9.500V6zM9 12l2.200 2.200L15.200 10",
  health: "M3 12h4l2.500-6 4.500 12 2.500-6H21",
  notifications: "M6 17V11a6 6 0 0 1 12 0v6l2 2H4zM10 21h4",
  insights: "M4 20V11M10 20V4M16 20v-6M4 20h17M21 20V8",
  context: "M4 5h16M4 10h10M4 15h16M4 20h7",
  plus: "M12 5v14M5 12h14",
  edit: "M4 20h4L19.500 8.500l-4-4L4 16zM13.500 6.500l4 4",
  send: "M4 12 20 4l-5 16-3.500-6.500z",
  mic: "M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3zM5.500 11a6.500 6.500 0 0 0 13 0M12 17.500V21",
  stop: "M7 7h10v10H7z",
  speaker: "M4 9.500v5h3.500L12 18.500v-13L7.500 9.500zM15.500 9a4 4 0 0 1 0 6M18 6.500a7.500 7.500 0 0 1 0 11",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  menu: "M4 7h16M4 12h16M4 17h16",
  back: "M15 5l-7 7 7 7",
  close: "M6 6l12 12M18 6 6 18",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M5.300 18.700l1.400-1.400M17.300 6.700l1.400-1.400",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z",
  help: "M9.500 9.200a2.600 2.600 0 1 1 3.700 2.400c-.8.400-1.200 1-1.200 2M12 17h.01M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18z",
  out: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  tool: "M14.500 6.500a4 4 0 0 0-5 5L4 17l3 3 5.500-5.500a4 4 0 0 0 5-5L15 12l-3-3z",
  voice: "M5 10v4M9 6v12M13 9v6M17 5v14M21 10v4",
  phone: "M6 3h4l1.500 5-2.500 1.500a12 12 0 0 0 5.500 5.500L16 12.500l5 1.500v4a2 2 0 0 1-2 2A16 16 0 0 1 4 5a2 2 0 0 1 2-2z",
  email: "M3.500 6h17v12h-17zM3.500 7l8.500 6 8.500-6",
  text: "M4 6h16M4 12h16M4 18h9",
  check: "M5 12.500 10 17 19 7",
  warn: "M12 4 2.500 20h19zM12 10v4M12 17h.01",
  copy: "M8 8h11v12H8zM5 16V4h11",
  download: "M12 4v11M7.500 11 12 15.500 16.500 11M5 20h14",
  filter: "M4 6h16M7 12h10M10 18h4",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4.200 4.200 0 0 0-6-6l-1.500 1.500M14 10a4 4 0 0 0-6 0l-3 3a4.200 4.200 0 0 0 6 6l1.500-1.500",
};

/** @param {{ name: string }} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${PATHS[name] ?? ""} /></svg>`;
}

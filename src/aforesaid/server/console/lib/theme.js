// Light or dark: as the system has it, unless the user chose one.

const NAME = "aforesaid.theme";

/** @type {Set<() => void>} */
const listeners = new Set();

/** @returns {string} "light", "dark" or "" for the system's. */
export const theme = () => localStorage.getItem(NAME) ?? "";

export const isDark = () => (theme() || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

export function applyTheme() {
  if (theme()) document.documentElement.dataset.theme = theme();
  else delete document.documentElement.dataset.theme;
}

export function toggleTheme() {
  localStorage.setItem(NAME, isDark() ? "light" : "dark");
  applyTheme();
  for (const listener of [...listeners]) listener();
}

/**
 * Call `listener` when the colours change, by the user or by the system.
 * @param {() => void} listener
 * @returns {() => void} Stops it.
 */
export function onTheme(listener) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  listeners.add(listener);
  system.addEventListener("change", listener);
  return () => {
    listeners.delete(listener);
    system.removeEventListener("change", listener);
  };
}

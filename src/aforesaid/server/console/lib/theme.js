// Light or dark: as the system has it, unless the user chose one.

const NAME = "aforesaid.theme";

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
}

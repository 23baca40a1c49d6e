// Draws the diagrams of a page. Without it, or without Mermaid, their text can be read.
if (window.mermaid) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  window.mermaid.initialize({ startOnLoad: true, theme: dark ? "dark" : "neutral" });
}

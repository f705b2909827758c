// Replaces the live part of a page with the HTML that the server sends. Without JavaScript the page shows its state at loading.
"use strict";
(() => {
  const part = document.querySelector("[data-live]");
  const liveness = document.getElementById("liveness");
  if (!part || !part.dataset.live || !liveness || !window.EventSource) return;
  const say = (live) => {
    const text = live ? "● live" : "○ not live: reload";
    if (liveness.textContent !== text) liveness.textContent = text;
    liveness.className = live ? "live" : "dead";
    liveness.hidden = false;
  };
  const source = new EventSource(part.dataset.live);
  let heard = Date.now();
  source.onmessage = (event) => {
    heard = Date.now();
    say(true);
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) return; // somebody copies text
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.innerHTML = event.data;
    if (focused) {
      const again = [...part.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
  };
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) say(false); };
  // A server that is gone is no error: the browser connects again for ever. An event comes every 2 s, or 10 s later if the database is slow.
  setInterval(() => { if (Date.now() - heard > 20000) say(false); }, 2000);
})();

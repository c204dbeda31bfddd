// Live changes, a theme that is kept, and questions asked in place. Everything works without it.
"use strict";
(() => {
  const THEME = "qo-theme";
  const root = document.documentElement;

  // Storage may be forbidden.
  const kept = () => { try { return localStorage.getItem(THEME); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem(THEME, theme); } catch { /* it lasts for this page */ } };

  // Before the page is drawn.
  if (kept() === "light" || kept() === "dark") root.dataset.theme = kept();

  const $ = (id) => document.getElementById(id);
  const main = () => $("main");

  function themes() {
    const button = $("theme");
    if (!button) return;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const show = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.setAttribute("aria-label", "Change between light and dark");
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      keep(root.dataset.theme);
      show();
    });
    dark.addEventListener("change", show);
    button.hidden = false;
    show();
  }

  // Moments: the title says them by the browser's own clock.
  function localTimes() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.valueOf())) time.title = at.toLocaleString();
    }
  }

  // A form that a person works on stays as it is.
  function isInUse(form) {
    if (form.contains(document.activeElement) && document.activeElement.matches("input, select")) return true;
    return [...form.elements].some((element) => {
      if (element.matches("select")) return [...element.options].some((option) => option.selected !== option.defaultSelected);
      return element.matches("input:not([type=hidden])") && element.value !== element.defaultValue;
    });
  }

  // A form's own `id` may be hidden behind a field of that name.
  const idOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("id") : null);
  const isSame = (old, fresh) => old.nodeName === fresh.nodeName && idOf(old) === idOf(fresh);

  // Makes one tree like another with as few changes as it can, so that focus, scroll and open details stay.
  function morph(old, fresh) {
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE || (old.nodeName === "FORM" && isInUse(old))) return;
    for (const { name, value } of [...fresh.attributes]) {
      const isOwn = (old.nodeName === "DETAILS" && name === "open") || (old.nodeName === "TIME" && name === "title");
      if (!isOwn && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
    }
    const follows = old.classList.contains("log") && old.scrollHeight - old.scrollTop - old.clientHeight < 40;
    morphChildren(old, fresh);
    if (follows) old.scrollTop = old.scrollHeight;
  }

  function morphChildren(old, fresh) {
    const named = new Map([...old.children].filter(idOf).map((child) => [idOf(child), child]));
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const known = idOf(child) ? named.get(idOf(child)) : undefined;
      if (known && known !== at && isSame(known, child)) {
        old.insertBefore(known, at);
        at = known;
      }
      if (at && at.nodeType === child.nodeType && isSame(at, child)) {
        morph(at, child);
        at = at.nextSibling;
      } else {
        old.insertBefore(child, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  let busy = false;
  let again = false;
  let quiet = 0;
  let later;
  let told = 0;

  async function refresh() {
    clearTimeout(later);
    if (busy) { again = true; return; }
    if (Date.now() < quiet) { later = setTimeout(refresh, quiet - Date.now()); return; }
    busy = true;
    const asked = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (answer.redirected || answer.status === 401 || answer.status === 403) { location.reload(); return; }
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (!fresh || $("ask")?.open) return;
      const said = $("said");
      if (said && Date.now() - started < 8000) fresh.prepend(said.cloneNode(true));
      morph(main(), fresh);
      if (document.title !== page.title) {
        document.title = page.title;
        // Not more often than a person wants to hear it.
        if (Date.now() - told > 10000) { told = Date.now(); $("news").textContent = page.title.replace(" · qo", ""); }
      }
      localTimes();
    } catch {
      // The stream says when the server is back.
    } finally {
      busy = false;
      // A store that takes long is asked the more seldom.
      const took = Date.now() - asked;
      quiet = took > 300 ? Date.now() + 4 * took : 0;
      if (again) { again = false; refresh(); }
    }
  }

  const started = Date.now();

  function live() {
    const shown = $("live");
    const pace = Number(main()?.dataset.pace);
    if (!shown || !pace) return;
    let source;
    let timer;
    const say = (word, away) => { shown.textContent = word; shown.classList.toggle("away", away); };
    const open = () => {
      source = new EventSource("/live");
      // What changed before the stream was open, it does not tell.
      source.addEventListener("open", () => { say("live", false); refresh(); });
      source.addEventListener("changed", refresh);
      source.addEventListener("error", () => {
        setTimeout(() => { if (source.readyState !== EventSource.OPEN) say("reconnecting", true); }, 2000);
      });
      timer = setInterval(refresh, pace);
    };
    // A page in the background needs no connection: browsers have few of them for each server.
    document.addEventListener("visibilitychange", () => {
      source.close();
      clearInterval(timer);
      if (!document.hidden) open();
    });
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (event) => { if (event.persisted) open(); });
    shown.hidden = false;
    open();
  }

  // A question that would be a page of its own is asked in a dialog.
  function questions() {
    const ask = $("ask");
    if (!ask?.showModal) return;
    document.addEventListener("submit", async (event) => {
      const form = event.target;
      if (!form.matches("form[data-ask]") || event.defaultPrevented) return;
      event.preventDefault();
      const link = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`;
      try {
        const answer = await fetch(link, { headers: { accept: "text/html" }, cache: "no-store" });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const question = page.getElementById("confirm");
        if (!question) { location.assign(link); return; }
        ask.replaceChildren(question);
        ask.showModal();
      } catch {
        location.assign(link);
      }
    });
    ask.addEventListener("click", (event) => {
      if (event.target === ask || event.target.closest("[data-close]")) { event.preventDefault(); ask.close(); }
    });
    ask.addEventListener("close", () => ask.replaceChildren());
  }

  // On a phone the section that is open may stand beyond the edge.
  function showSection() {
    const list = document.querySelector("header nav");
    const here = list?.querySelector("[aria-current]");
    if (here) list.scrollLeft = here.offsetLeft - (list.clientWidth - here.offsetWidth) / 2;
  }

  // Empty fields of a filter need not stand in the address.
  function filters() {
    for (const form of document.querySelectorAll("form.search")) {
      form.addEventListener("formdata", (event) => {
        for (const [name, value] of [...event.formData.entries()]) if (value === "") event.formData.delete(name);
      });
    }
  }

  // What was done is said once: not again when the page is loaded again.
  function forget() {
    const link = new URL(location.href);
    if (!link.searchParams.has("done")) return;
    link.searchParams.delete("done");
    link.searchParams.delete("count");
    history.replaceState(history.state, "", link);
  }

  document.addEventListener("DOMContentLoaded", () => {
    forget();
    themes();
    showSection();
    localTimes();
    questions();
    filters();
    live();
    for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
  });
})();

/** The address of the page: its path and its query. Links that the page handles itself do not load it again. Back and
 * forward return to where the reader was on the page. */

const SETTLE_MS = 3000;

interface Entry {
  /** Position of the page in the list of visited pages. */
  at: number;
  /** How far the page was scrolled when it was left. */
  top: number;
}

class Router {
  path = $state(location.pathname);
  query = $state(new URLSearchParams(location.search));
  /** Asks the user before the page is left. Returns whether it may be left now; if not, `leave` may be called later. */
  guard: ((leave: () => void) => boolean) | null = null;
  #entry: Entry;
  #isReturning = false;
  #stopRestoring = () => {};

  constructor() {
    history.scrollRestoration = "manual";
    this.#entry = this.#entryOf(history.state) ?? { at: 0, top: 0 };
    history.replaceState(this.#entry, "");
    window.addEventListener("popstate", (event) => this.#pop(this.#entryOf(event.state)));
    addEventListener("beforeunload", (event) => {
      this.#keepScroll();
      if (this.guard) event.preventDefault();
    });
    document.addEventListener("click", (event) => {
      const link = (event.target as Element | null)?.closest?.("a");
      if (!link || event.defaultPrevented || event.button !== 0) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
      if (link.pathname.startsWith("/v1/")) return;
      event.preventDefault();
      this.go(link.pathname + link.search + link.hash);
    });
    if (this.#entry.top) this.#restore(this.#entry.top);
  }

  #entryOf(state: unknown): Entry | null {
    const found = state as Partial<Entry> | null;
    return typeof found?.at === "number" && typeof found.top === "number" ? { at: found.at, top: found.top } : null;
  }

  #read(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  #keepScroll(): void {
    this.#entry.top = document.getElementById("main")?.scrollTop ?? 0;
    history.replaceState(this.#entry, "");
  }

  #pop(entry: Entry | null): void {
    if (this.#isReturning) {
      this.#isReturning = false;
      return;
    }
    const from = this.#entry;
    const steps = (entry?.at ?? 0) - from.at;
    if (location.pathname !== this.path && this.guard && !this.guard(() => history.go(steps))) {
      this.#isReturning = true;
      history.go(-steps);
      return;
    }
    const isOther = location.pathname !== this.path;
    this.#entry = entry ?? { at: 0, top: 0 };
    this.#read();
    if (isOther) this.#focusPage();
    this.#restore(this.#entry.top);
  }

  /** Scroll to where the reader was as soon as the page is long enough, unless the reader scrolls first. */
  #restore(top: number): void {
    this.#stopRestoring();
    const until = Date.now() + SETTLE_MS;
    let isStopped = false;
    const stop = (this.#stopRestoring = () => {
      isStopped = true;
      for (const name of ["wheel", "touchstart", "keydown", "pointerdown"]) removeEventListener(name, stop);
    });
    for (const name of ["wheel", "touchstart", "keydown", "pointerdown"]) addEventListener(name, stop);
    const look = () => {
      if (isStopped) return;
      const main = document.getElementById("main");
      main?.scrollTo(0, top);
      if ((main && Math.abs(main.scrollTop - top) < 2) || Date.now() > until) stop();
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }

  /** Move the focus from the menu to the page. */
  #focusPage(): void {
    document.getElementById("main")?.focus({ preventScroll: true });
  }

  /** Open a page, unless its guard keeps the current one. */
  go(url: string, options: { replace?: boolean } = {}): void {
    const target = new URL(url, location.href);
    const isOther = target.pathname !== this.path;
    if (isOther && this.guard && !this.guard(() => this.go(url, options))) return;
    this.#stopRestoring();
    if (options.replace) history.replaceState(this.#entry, "", url);
    else {
      this.#keepScroll();
      this.#entry = { at: this.#entry.at + 1, top: 0 };
      history.pushState(this.#entry, "", url);
    }
    this.#read();
    if (options.replace) return;
    document.getElementById("main")?.scrollTo(0, 0);
    if (isOther) this.#focusPage();
  }

  /** Change parameters of the query and keep the others. An empty value removes a parameter. */
  set(values: Record<string, string | null | undefined>, replace = true): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(values)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    this.go(this.path + (text ? `?${text}` : ""), { replace });
  }
}

export const router = new Router();

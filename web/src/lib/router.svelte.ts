/** The address of the page: its path and its query. Links that the page handles itself do not load it again. */

class Router {
  path = $state(location.pathname);
  query = $state(new URLSearchParams(location.search));

  constructor() {
    addEventListener("popstate", () => this.#read());
    document.addEventListener("click", (event) => {
      const link = (event.target as Element | null)?.closest?.("a");
      if (!link || event.defaultPrevented || event.button !== 0) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
      if (link.pathname.startsWith("/v1/")) return;
      event.preventDefault();
      this.go(link.pathname + link.search + link.hash);
    });
  }

  #read(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  go(url: string, options: { replace?: boolean } = {}): void {
    if (options.replace) history.replaceState(null, "", url);
    else history.pushState(null, "", url);
    this.#read();
    if (!options.replace) document.getElementById("main")?.scrollTo(0, 0);
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

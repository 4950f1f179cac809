/** The events of a run in short. More are loaded as the run goes on. */

import { untrack } from "svelte";
import { api, messageOf, unwrap } from "./api.svelte";
import type { Line } from "./waterfall";

const PAGE = 2000;

export class RunLines {
  lines: Line[] = $state.raw([]);
  error = $state("");
  #loading = false;
  #wanted = 0;
  #run = "";

  /** Load the events up to a sequence, those that are missing. */
  async load(run: string, sequence: number): Promise<void> {
    if (run !== this.#run) {
      this.#run = run;
      this.lines = [];
    }
    this.#wanted = sequence;
    if (this.#loading) return;
    this.#loading = true;
    try {
      for (let last = this.#last(); last < this.#wanted;) {
        const starts = Array.from({ length: Math.ceil((this.#wanted - last) / PAGE) }, (_, at) => last + at * PAGE);
        const pages = starts.map((after) => this.#page(run, after));
        for (const page of pages) page.catch(() => undefined); // the first failure is shown
        for (const page of pages) {
          const more = await page;
          if (run !== this.#run) return;
          this.lines = this.lines.concat(more);
        }
        if (this.#last() === last) break;
        last = this.#last();
      }
      this.error = "";
    } catch (error) {
      this.error = messageOf(error);
    } finally {
      this.#loading = false;
    }
  }

  async #page(run: string, after: number): Promise<Line[]> {
    const query = { after, limit: PAGE };
    return (await unwrap(api.GET("/v1/runs/{run_id}/event-lines", { params: { path: { run_id: run }, query } })))
      .items as Line[];
  }

  #last(): number {
    return untrack(() => this.lines).at(-1)?.sequence ?? 0;
  }
}

/** The transcript of a run on a page: its latest items, then every change, until it ends or the page is left. */

import { untrack } from "svelte";
import type { Schemas } from "./api.svelte";
import { api, ApiProblem, messageOf, session, unwrap } from "./api.svelte";
import { readFrames, waitToRetry } from "./sse";
import { TranscriptCopy, type Item, type Totals } from "./transcript";

const PAGE = 300;
const SIGN_IN_MS = 1000;
/** The run was deleted, or its reader may not see it any more. */
const GONE = [403, 404];

export class RunFollower {
  items: readonly Item[] = $state.raw([]);
  totals: Totals = $state.raw({});
  sequence = $state(0);
  earlier: string | null = $state(null);
  loaded = $state(false);
  error = $state("");
  #copy = new TranscriptCopy();
  #abort: AbortController | undefined;
  #opening: Promise<void> | undefined;
  #isClosed = false;
  #frame = 0;

  constructor(readonly runId: string) {}

  get ended(): boolean {
    return (this.totals.outcome ?? null) !== null;
  }

  /** Load the latest items, and follow the run. Further calls have no effect, unless it could not be loaded. */
  open(): Promise<void> {
    return (this.#opening ??= this.#load());
  }

  /** Try again what failed. */
  retry(): Promise<void> {
    return this.loaded ? this.loadEarlier() : this.open();
  }

  async #load(): Promise<void> {
    try {
      const page = await this.#read(null);
      if (this.#isClosed) return;
      this.#copy.open(page);
      this.error = "";
      this.loaded = true;
      this.#show();
    } catch (error) {
      this.error = messageOf(error);
      this.#opening = undefined;
      return;
    }
    void this.#follow();
  }

  /** Load the items before these. */
  async loadEarlier(): Promise<void> {
    if (this.earlier === null) return;
    try {
      this.#copy.prepend(await this.#read(this.earlier));
      this.error = "";
      this.#show();
    } catch (error) {
      this.error = messageOf(error);
    }
  }

  /** Load the items before these, until there are no more or an item that is looked for is there. */
  async loadAll(isEnough: () => boolean = () => false): Promise<void> {
    while (this.earlier !== null && !isEnough() && !this.#isClosed) {
      const before = this.earlier;
      await this.loadEarlier();
      if (this.earlier === before) return; // it failed
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#abort?.abort();
    cancelAnimationFrame(this.#frame);
  }

  async #follow(): Promise<void> {
    for (let failures = 0; ; failures++) {
      await this.#untilWanted();
      if (this.#isClosed || this.#hasEnded()) return;
      const abort = (this.#abort = new AbortController());
      const hide = () => document.hidden && abort.abort();
      document.addEventListener("visibilitychange", hide);
      try {
        for await (const frames of await this.#connect(abort)) {
          failures = 0;
          for (const frame of frames)
            if (frame.data) this.#apply(JSON.parse(frame.data) as Schemas["TranscriptChanges"]);
        }
      } catch (error) {
        if (error instanceof ApiProblem && GONE.includes(error.status)) {
          this.error = error.message;
          return;
        } // otherwise the connection failed, or the page is hidden or left
      } finally {
        document.removeEventListener("visibilitychange", hide);
      }
      if (!this.#isClosed && !this.#hasEnded() && !document.hidden) await waitToRetry(failures);
    }
  }

  /** Return once the page is shown and its reader has signed in, or has left it. A browser opens at most six
   * connections per server: hidden pages keep none. */
  async #untilWanted(): Promise<void> {
    while (!this.#isClosed && document.hidden)
      await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    while (!this.#isClosed && untrack(() => session.identity) === null)
      await new Promise((done) => setTimeout(done, SIGN_IN_MS));
  }

  async #connect(abort: AbortController) {
    const params = { path: { run_id: this.runId }, query: { view: "transcript" as const, after: this.#copy.sequence } };
    const pending = api.GET("/v1/runs/{run_id}/events", { params, parseAs: "stream", signal: abort.signal });
    const body = (await unwrap(pending)) as unknown as ReadableStream<Uint8Array> | null;
    if (!body) throw new Error("no body");
    return readFrames(body, abort);
  }

  #apply({ sequence, changes }: Schemas["TranscriptChanges"]): void {
    for (const change of changes) this.#copy.apply(change);
    this.#copy.sequence = sequence;
    this.#frame ||= requestAnimationFrame(() => this.#show());
  }

  #show(): void {
    this.#frame = 0;
    this.items = this.#copy.items;
    this.totals = this.#copy.totals;
    this.sequence = this.#copy.sequence;
    this.earlier = this.#copy.earlier;
  }

  #hasEnded(): boolean {
    return (this.#copy.totals.outcome ?? null) !== null;
  }

  #read(before: string | null): Promise<Schemas["TranscriptPage"]> {
    const params = { path: { run_id: this.runId }, query: { limit: PAGE, ...(before === null ? {} : { before }) } };
    return unwrap(api.GET("/v1/runs/{run_id}/transcript", { params }));
  }
}

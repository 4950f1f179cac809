/** The one connection to /v1/events. It runs in a shared worker, or in the page where there is none. */

import type { LinkState, LiveEvent } from "./live_protocol";
import { readFrames, waitToRetry } from "./sse";

const BATCH_MS = 8;

export interface Listener {
  events(events: LiveEvent[]): void;
  state(state: LinkState, since: number): void;
  reset(): void;
}

export class EventStream {
  state: LinkState = "connecting";
  since = Date.now();
  #lastId = "";
  #failures = 0;
  #pending: LiveEvent[] = [];
  #abort: AbortController | undefined;
  #stopped = true;
  #opened = false;
  #listener: Listener;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  start(): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    void this.#run();
  }

  /** Forget a sign-in that ended, and try again. */
  restart(): void {
    this.#stopped = true;
    this.#abort?.abort();
    this.#failures = 0;
    setTimeout(() => this.start(), 0);
  }

  stop(): void {
    this.#stopped = true;
    this.#abort?.abort();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const abort = (this.#abort = new AbortController());
      try {
        await this.#follow(abort);
      } catch {
        // the connection failed: the state says so
      }
      if (this.#stopped || abort !== this.#abort || this.state === "signed_out") return;
      this.#set("away");
      await waitToRetry(this.#failures++);
    }
  }

  async #follow(abort: AbortController): Promise<void> {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#lastId) headers["last-event-id"] = this.#lastId;
    const response = await fetch("/v1/events", { headers, signal: abort.signal, cache: "no-store" });
    if (response.status === 401 || response.status === 403) {
      this.#stopped = true;
      this.#set("signed_out");
      return;
    }
    if (!response.ok || !response.body) throw new Error(String(response.status));
    this.#failures = 0;
    if (this.#lastId) this.#set("open");
    for await (const frames of readFrames(response.body, abort)) {
      for (const frame of frames) this.#take(frame.id, frame.event, frame.data);
      if (this.state === "open") continue;
      this.#set("open"); // the first frame says where the stream begins: nothing after it is missed
      if (this.#opened) this.#listener.reset(); // what happened meanwhile is unknown
      this.#opened = true;
    }
  }

  #take(id: string | null, type: string, data: string): void {
    if (id) this.#lastId = id;
    if (!data) return; // only the position
    if (type === "stream_reset") {
      this.#lastId = "";
      this.#listener.reset();
      return;
    }
    this.#pending.push(JSON.parse(data) as LiveEvent);
    if (this.#pending.length === 1) setTimeout(() => this.#flush(), BATCH_MS);
  }

  #flush(): void {
    const events = this.#pending;
    this.#pending = [];
    this.#listener.events(events);
  }

  #set(state: LinkState): void {
    if (state === this.state) return;
    this.state = state;
    this.since = Date.now();
    this.#listener.state(state, this.since);
  }
}

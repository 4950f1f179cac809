/** The one connection to /v1/events. It runs in a shared worker, or in the page where there is none. */

import { LIVE_TYPES, type LinkState, type LiveEvent } from "./live_protocol";
import { FrameReader } from "./sse";

const BATCH_MS = 40;
const DURABLE_BATCH_MS = 8;
const SILENCE_MS = 40_000; // the server sends a comment every 15 seconds
const MOST_WRITING = 500;
const RETRY_MS = [250, 500, 1000, 2000, 4000, 5000];

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
  #flushedAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort: AbortController | undefined;
  #stopped = true;
  #opened = false;
  #writing = new Map<string, Map<string, LiveEvent>>();
  #listener: Listener;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  start(): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    void this.#run();
  }

  /** Return the text that a run is writing now, for a tab that has just begun to watch it. */
  catchUp(runId: string): LiveEvent[] {
    const events = [...(this.#writing.get(runId)?.values() ?? [])];
    return events.map((event) => ({ ...event, data: { ...event.data, offset: 0 } }));
  }

  #remember(event: LiveEvent): void {
    if (event.type === "token" || event.type === "thinking") {
      const known = this.#writing.get(event.run_id) ?? new Map<string, LiveEvent>();
      const before = known.get(event.type);
      const same = before && before.data.request === event.data.request;
      const text = same ? String(before.data.text).slice(0, Number(event.data.offset)) : "";
      known.set(event.type, { ...event, data: { ...event.data, text: text + String(event.data.text) } });
      this.#writing.set(event.run_id, known);
      if (this.#writing.size > MOST_WRITING) this.#writing.delete(this.#writing.keys().next().value ?? "");
    } else if (["llm_response", "llm_error", "attempt_reset", "run_end"].includes(event.type)) this.#writing.delete(event.run_id);
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
      const wait = RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)] ?? 5000;
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  async #follow(abort: AbortController): Promise<void> {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#lastId) headers["last-event-id"] = this.#lastId;
    const response = await fetch("/v1/events?live=true", { headers, signal: abort.signal, cache: "no-store" });
    if (response.status === 401 || response.status === 403) {
      this.#stopped = true;
      this.#set("signed_out");
      return;
    }
    if (!response.ok || !response.body) throw new Error(String(response.status));
    this.#failures = 0;
    if (this.#lastId) this.#set("open");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const frames = new FrameReader();
    for (;;) {
      const silence = setTimeout(() => abort.abort(), SILENCE_MS);
      const { done, value } = await reader.read();
      clearTimeout(silence);
      if (done) return;
      for (const frame of frames.push(value)) this.#take(frame.id, frame.event, frame.data);
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
    const event = JSON.parse(data) as LiveEvent;
    this.#remember(event);
    this.#pending.push(event);
    // A durable event is shown at once. Tokens that follow each other closely are gathered, so that pages draw less often.
    const rest = BATCH_MS - (performance.now() - this.#flushedAt);
    const wait = LIVE_TYPES.has(type) ? Math.max(0, rest) : DURABLE_BATCH_MS;
    this.#timer ??= setTimeout(() => this.#flush(), wait);
  }

  #flush(): void {
    this.#timer = undefined;
    this.#flushedAt = performance.now();
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

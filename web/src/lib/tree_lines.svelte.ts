/** The spans of a run and of the runs below it. They grow while the runs go on. */

import { untrack } from "svelte";
import { api, unwrap, type Schemas } from "./api.svelte";
import { FollowedLoad } from "./followed_load";
import type { LiveEvent } from "./live_protocol";
import { Resource } from "./resource.svelte";
import { RunLines } from "./run_lines.svelte";
import { Waterfall } from "./waterfall";

/** Runs whose spans are loaded without being asked for. */
const MOST_RUNS = 40;
const DELAY_MS = 300;

/** The events of one run, and the spans that they make. */
class RunSpans {
  readonly log = new RunLines();
  #made = new Waterfall();
  #taken = 0;

  constructor(readonly run: string) {}

  load(sequence: number): void {
    void this.log.load(this.run, sequence);
  }

  /** The spans so far. It is another object whenever they have changed. */
  readonly fall = $derived.by(() => {
    const lines = this.log.lines;
    if (lines.length < this.#taken) [this.#made, this.#taken] = [new Waterfall(), 0];
    this.#made.add(lines.slice(this.#taken));
    this.#taken = lines.length;
    return Object.assign(new Waterfall(), {
      spans: [...this.#made.spans],
      start: this.#made.start,
      end: this.#made.end,
    });
  });
}

export class TreeLines {
  readonly tree = new Resource<Schemas["RunTree"]>();
  readonly #runs = new Map<string, RunSpans>();
  #known: readonly RunSpans[] = $state.raw([]);
  readonly falls = $derived(new Map(this.#known.map((each) => [each.run, each.fall])));
  readonly error = $derived(this.#known.find((each) => each.log.error)?.log.error ?? this.tree.error);

  constructor(readonly root: string) {}

  /** Load and follow until the returned function is called. */
  follow(): () => void {
    return new FollowedLoad({ load: () => this.#load(), apply: this.#apply, delayMs: DELAY_MS }).follow();
  }

  /** Load the spans of a run up to a sequence. */
  open(run: string, sequence: number): void {
    untrack(() => {
      let spans = this.#runs.get(run);
      if (!spans) {
        this.#runs.set(run, (spans = new RunSpans(run)));
        this.#known = [...this.#runs.values()];
      }
      spans.load(sequence);
    });
  }

  async #load(): Promise<void> {
    await this.tree.load(() => unwrap(api.GET("/v1/runs/{run_id}/tree", { params: { path: { run_id: this.root } } })));
    for (const { run } of this.tree.data?.members.slice(0, MOST_RUNS) ?? []) this.open(run.run_id, run.sequence);
  }

  /** Load the new events of runs that are shown. Return whether a run may have been added. */
  readonly #apply = (events: LiveEvent[]): boolean => {
    const latest = new Map<string, number>();
    for (const event of events) if (this.#runs.has(event.run_id)) latest.set(event.run_id, event.sequence);
    for (const [run, sequence] of latest) this.open(run, sequence);
    return events.some((event) => event.type === "agent_spawn" && this.#runs.has(event.run_id));
  };
}

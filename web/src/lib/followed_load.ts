/** Loads what a page shows, and loads it again when the events of runs change it. */

import { live } from "./live.svelte";
import type { LiveEvent } from "./live_protocol";

/** Calls a function once, some time after the first request. Further requests until then change nothing. */
export class Throttle {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly call: () => unknown,
    readonly delayMs: number,
  ) {}

  request(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.call();
    }, this.delayMs);
  }

  cancel(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

interface Options {
  load: () => Promise<void>;
  /** Apply events to what is shown. Return true if it has to be loaded again. */
  apply: (events: LiveEvent[]) => boolean;
  delayMs: number;
}

type Source = Pick<typeof live, "follow" | "ready">;

/** Loads once events are followed. Loads again soon after an event that asks for it, and after a gap in the stream.
 * Events during a load are applied to what was loaded. */
export class FollowedLoad {
  #during: LiveEvent[] = [];
  #loads = 0;
  readonly #again: Throttle;

  constructor(
    readonly options: Options,
    readonly source: Source = live,
  ) {
    this.#again = new Throttle(this.reload, options.delayMs);
  }

  readonly reload = async (): Promise<void> => {
    this.#loads++;
    try {
      await this.options.load();
    } finally {
      this.#loads--;
    }
    if (this.#loads === 0) this.#apply(this.#during.splice(0));
  };

  /** Load and follow until the returned function is called. */
  follow(): () => void {
    let isLeft = false;
    const leave = this.source.follow(
      (events) => {
        if (this.#loads) this.#during.push(...events);
        else this.#apply(events);
      },
      () => this.#again.request(),
    );
    void this.source.ready().then(() => (isLeft ? undefined : this.reload()));
    return () => {
      isLeft = true;
      this.#during = [];
      leave();
      this.#again.cancel();
    };
  }

  #apply(events: LiveEvent[]): void {
    if (this.options.apply(events)) this.#again.request();
  }
}

/** The stored events of all runs as they happen, in this tab. */

import { untrack } from "svelte";
import type { FromTab, LinkState, LiveEvent, ToTab } from "./live_protocol";
import workerUrl from "./live.worker?sharedworker&url";
import { EventStream } from "./stream";

/** Trusted types, which the types of the DOM do not have yet. */
interface TrustedWindow {
  trustedTypes?: { createPolicy(name: string, rules: object): { createScriptURL(url: string): string } };
}

type Handler = (events: LiveEvent[]) => void;

class Live {
  state: LinkState = $state("connecting");
  since = $state(0);
  #handlers = new Set<Handler>();
  #resets = new Set<() => void>();
  #port: MessagePort | null = null;
  #own: EventStream | null = null;
  #started = false;
  #afterReconnect: (() => void)[] = [];
  #missed = false; // something was loaded while no events were followed

  /** Begin to follow. Called once the user has signed in, and again after each sign-in. */
  start(): void {
    if (this.#started) {
      this.#say({ kind: "retry" });
      this.#own?.restart();
      return;
    }
    this.#started = true;
    if (typeof SharedWorker === "function") this.#startShared();
    else this.#startOwn();
  }

  #startShared(): void {
    const policy = (window as unknown as TrustedWindow).trustedTypes?.createPolicy("treadle", {
      createScriptURL: (url: string) => url,
    });
    const trusted = policy ? policy.createScriptURL(workerUrl) : workerUrl;
    try {
      const worker = new SharedWorker(trusted, { type: "module", name: "treadle-live" });
      worker.onerror = () => this.#startOwn();
      this.#port = worker.port;
      worker.port.onmessage = (message: MessageEvent<ToTab>) => this.#hear(message.data);
      addEventListener("pagehide", () => this.#say({ kind: "bye" }));
      addEventListener("pageshow", (event) => {
        if ((event as PageTransitionEvent).persisted) this.#say({ kind: "hello" });
      });
      this.#say({ kind: "hello" });
    } catch {
      this.#startOwn();
    }
  }

  #startOwn(): void {
    if (this.#own) return;
    this.#port = null;
    this.#own = new EventStream({
      events: (events) => this.#hear({ kind: "events", events }),
      state: (state, since) => this.#hear({ kind: "state", state, since }),
      reset: () => this.#hear({ kind: "reset" }),
    });
    this.#own.start();
  }

  #say(message: FromTab): void {
    this.#port?.postMessage(message);
  }

  #hear(message: ToTab): void {
    if (message.kind === "events") {
      for (const handler of this.#handlers) handler(message.events);
    } else if (message.kind === "state") {
      this.state = message.state;
      this.since = message.since;
      if (this.state === "open") for (const call of this.#afterReconnect.splice(0)) call();
      if (this.state === "open" && this.#missed) {
        this.#missed = false;
        for (const reset of this.#resets) reset();
      }
    } else {
      for (const reset of this.#resets) reset();
    }
  }

  /** Return once events are followed, so that what is loaded afterwards misses none. After a second, return without
   * them: what is loaded then is loaded again once they are followed. An effect that awaits this does not run again
   * when the state changes. */
  async ready(): Promise<void> {
    const state = () => untrack(() => this.state);
    for (let tries = 0; state() === "connecting" && tries < 40; tries++)
      await new Promise((done) => setTimeout(done, 25));
    this.#missed ||= state() !== "open";
  }

  /** Call a function once the server answers again. */
  afterReconnect(call: () => void): void {
    this.#afterReconnect.push(call);
  }

  /** Call a function with new events until the returned function is called. */
  follow(handler: Handler, onReset?: () => void): () => void {
    this.#handlers.add(handler);
    if (onReset) this.#resets.add(onReset);
    return () => {
      this.#handlers.delete(handler);
      if (onReset) this.#resets.delete(onReset);
    };
  }
}

export const live = new Live();

/** The questions of agents that wait for an answer, kept up to date for all pages. */

import { api, isUnreachable, messageOf, session, unwrap, type Schemas } from "./api.svelte";
import { FollowedLoad } from "./followed_load";
import { live } from "./live.svelte";

export type WaitingQuestion = Schemas["WaitingQuestion"];

class Questions {
  items: WaitingQuestion[] = $state.raw([]);
  loaded = $state(false);
  error = $state("");
  #started = false;

  get count(): number {
    return this.items.length;
  }

  start(): void {
    if (this.#started) return;
    this.#started = true;
    new FollowedLoad({
      load: () => this.load(),
      apply: (events) =>
        events.some(
          ({ type, data }) =>
            type === "clarify_requested" ||
            type === "clarify_answered" ||
            type === "run_end" ||
            (type === "run_waiting" && data.reason === "answer"),
        ),
      delayMs: 150,
    }).follow();
  }

  async load(): Promise<void> {
    if (!session.may("read") && !session.may("approve")) return;
    try {
      this.items = (await unwrap(api.GET("/v1/questions"))).items;
      this.error = "";
    } catch (error) {
      this.error = messageOf(error);
      if (isUnreachable(error)) live.afterReconnect(() => void this.load());
    } finally {
      this.loaded = true;
    }
  }
}

export const questions = new Questions();

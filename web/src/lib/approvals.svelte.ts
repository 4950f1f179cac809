/** The approvals that wait for a reviewer, kept up to date for all pages. */

import { api, isUnreachable, messageOf, session, unwrap, type Schemas } from "./api.svelte";
import { FollowedLoad } from "./followed_load";
import { live } from "./live.svelte";

export type Approval = Schemas["ApprovalView"];

class Approvals {
  items: Approval[] = $state.raw([]);
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
      apply: (events) => events.some((event) => event.type.startsWith("approval_") || event.type === "run_end"),
      delayMs: 150,
    }).follow();
  }

  async load(): Promise<void> {
    if (!session.may("read") && !session.may("approve")) return;
    try {
      this.items = (await unwrap(api.GET("/v1/approvals"))).items;
      this.error = "";
    } catch (error) {
      this.error = messageOf(error);
      if (isUnreachable(error)) live.afterReconnect(() => void this.load());
    } finally {
      this.loaded = true;
    }
  }
}

export const approvals = new Approvals();

/** The approvals that wait for a reviewer, kept up to date for all pages. */

import { api, messageOf, session, unwrap, type Schemas } from "./api.svelte";
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

  async start(): Promise<void> {
    if (this.#started) return;
    this.#started = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        void this.load();
      }, 150);
    };
    live.follow((events) => {
      if (events.some((event) => event.type.startsWith("approval_") || event.type === "run_end")) soon();
    }, soon);
    await live.ready();
    await this.load();
  }

  async load(): Promise<void> {
    if (!session.may("read")) return;
    try {
      this.items = (await unwrap(api.GET("/v1/approvals"))).items;
      this.error = "";
    } catch (error) {
      this.error = messageOf(error);
    } finally {
      this.loaded = true;
    }
  }
}

export const approvals = new Approvals();

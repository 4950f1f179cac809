/** Something that a page loads: its data, whether it is being loaded, and what went wrong. */

import { isUnreachable, messageOf } from "./api.svelte";
import { live } from "./live.svelte";

export class Resource<T> {
  data: T | undefined = $state.raw();
  error = $state("");
  loading = $state(true);
  #turn = 0;

  /** Load again. What was loaded before stays until the new data is there; an older answer is ignored. */
  async load(read: () => Promise<T>): Promise<void> {
    const turn = ++this.#turn;
    this.loading = true;
    try {
      const data = await read();
      if (turn !== this.#turn) return;
      this.data = data;
      this.error = "";
    } catch (error) {
      if (turn !== this.#turn) return;
      this.error = messageOf(error);
      if (isUnreachable(error)) live.afterReconnect(() => void (turn === this.#turn && this.load(read)));
    } finally {
      if (turn === this.#turn) this.loading = false;
    }
  }
}

/** An action of the user: whether it is under way, and what went wrong. What was typed stays. */
export class Action {
  busy = $state(false);
  error = $state("");

  async run(perform: () => Promise<unknown>): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    this.error = "";
    try {
      await perform();
      return true;
    } catch (error) {
      this.error = messageOf(error);
      return false;
    } finally {
      this.busy = false;
    }
  }
}

/** A list that a page shows, extends with a form and changes row by row. */

import { confirmFirst } from "./confirm.svelte";
import { Action, Resource } from "./resource.svelte";

interface Question {
  title: string;
  body: string;
  action: string;
}

export class EditableList<Row> {
  readonly rows = new Resource<Row[]>();
  readonly saving = new Action();
  readonly action = new Action();
  open = $state(false);
  /** Secret of a new row, which is shown once. */
  secret = $state("");

  constructor(readonly read: () => Promise<{ items: Row[] }>) {
    void this.load();
  }

  readonly load = (): Promise<void> => this.rows.load(async () => (await this.read()).items);

  /** Send what was typed. If that succeeds, close the form and load the list again. */
  save(send: () => Promise<unknown>): Promise<boolean> {
    return this.saving.run(async () => {
      await send();
      this.open = false;
      await this.load();
    });
  }

  /** Change a row, and load the list again. */
  change(perform: () => Promise<unknown>): Promise<boolean> {
    return this.action.run(async () => {
      await perform();
      await this.load();
    });
  }

  /** Change a row after the user has confirmed it, and load the list again. */
  confirm(question: Question, perform: () => Promise<unknown>): void {
    confirmFirst({
      ...question,
      perform: async () => {
        await perform();
        await this.load();
      },
    });
  }
}

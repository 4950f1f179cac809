/** Choices that this browser keeps, such as the columns of a list. */

export class Kept<Value> {
  value: Value = $state() as Value;

  constructor(
    readonly name: string,
    initial: Value,
    isValid: (value: unknown) => boolean,
  ) {
    this.value = initial;
    try {
      const kept: unknown = JSON.parse(localStorage.getItem(name) ?? "null");
      if (kept !== null && isValid(kept)) this.value = kept as Value;
    } catch {
      // what was kept cannot be read: the initial value stays
    }
  }

  set(value: Value): void {
    this.value = value;
    try {
      localStorage.setItem(this.name, JSON.stringify(value));
    } catch {
      // the store is full: the choice holds until the page is loaded again
    }
  }
}

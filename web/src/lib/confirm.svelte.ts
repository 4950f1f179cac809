/** One question before something that cannot be undone. */

interface Question {
  title: string;
  body: string;
  action: string;
  perform: () => Promise<unknown>;
}

class Confirmation {
  question: Question | null = $state.raw(null);
}

export const confirmation = new Confirmation();

export function confirmFirst(question: Question): void {
  confirmation.question = question;
}

/** What the page on the screen is about, for the title of the window. */

class Heading {
  text = $state("");
}

export const heading = new Heading();

/** Show a text in the title of the window, until the page is left. Call it in a component. */
export function showInTitle(text: () => string): void {
  $effect(() => {
    heading.text = text();
    return () => (heading.text = "");
  });
}

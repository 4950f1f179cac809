/** The icon of the window, with the number of decisions that wait. */

const MOST = 9;
const KEPT_MS = 60_000;
let shown: string | null = null;

const WHEEL =
  '<circle cx="16" cy="16" r="13" fill="none" stroke="#4f6bed" stroke-width="3"/>' +
  '<circle cx="16" cy="16" r="3.2" fill="#4f6bed"/>' +
  '<path d="M16 3v10M16 19v10M3 16h10M19 16h10" stroke="#4f6bed" stroke-width="2"/>';

export function drawIcon(waiting: number): string {
  const text = waiting > MOST ? `${MOST}+` : String(waiting);
  const size = text.length > 1 ? 13 : 17;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${WHEEL}` +
    '<circle cx="21" cy="21" r="11" fill="#c4483f"/>' +
    `<text x="21" y="${21 + size * 0.36}" font-family="sans-serif" font-weight="700" font-size="${size}" ` +
    `text-anchor="middle" fill="#fff">${text}</text></svg>`
  );
}

/** Show how many decisions wait in the icon of the window; none if it is 0. */
export function showInIcon(waiting: number): void {
  const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (!link) return;
  const before = shown;
  if (before) setTimeout(() => URL.revokeObjectURL(before), KEPT_MS); // the browser may still read it
  shown = waiting ? URL.createObjectURL(new Blob([drawIcon(waiting)], { type: "image/svg+xml" })) : null;
  link.href = shown ?? "/favicon.svg";
}

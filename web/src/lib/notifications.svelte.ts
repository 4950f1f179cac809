/** Notifications of the browser about decisions that wait, while the dashboard is hidden. */

import { texts } from "../texts";

const TAG = "treadle-inbox";

class Notifications {
  state: NotificationPermission | "unsupported" = $state(
    typeof Notification === "function" ? Notification.permission : "unsupported",
  );
  #told = 0;

  /** Ask the user whether notifications may be shown. */
  async ask(): Promise<void> {
    this.state = await Notification.requestPermission();
  }

  /** Notify the user if more decisions wait than before and no one looks at the page. */
  tell(waiting: number): void {
    const isMore = waiting > this.#told;
    this.#told = waiting;
    if (!isMore || this.state !== "granted" || !document.hidden) return;
    const shown = new Notification(texts.inbox.notification(waiting), { tag: TAG });
    shown.onclick = () => {
      window.focus();
      shown.close();
    };
  }
}

export const notifications = new Notifications();

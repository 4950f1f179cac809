/** Holds one event stream for all tabs of this browser. A browser opens at most six connections per server. */

import type { FromTab, ToTab } from "./live_protocol";
import { EventStream } from "./stream";

const tabs = new Set<MessagePort>();

function tellAll(message: ToTab): void {
  for (const port of tabs) port.postMessage(message);
}

const stream = new EventStream({
  events: (events) => tellAll({ kind: "events", events }),
  state: (state, since) => tellAll({ kind: "state", state, since }),
  reset: () => tellAll({ kind: "reset" }),
});

(self as unknown as SharedWorkerGlobalScope).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  port.onmessage = (message: MessageEvent<FromTab>) => {
    switch (message.data.kind) {
      case "hello":
        tabs.add(port);
        if (stream.state === "signed_out") stream.restart();
        else stream.start();
        port.postMessage({ kind: "state", state: stream.state, since: stream.since } satisfies ToTab);
        break;
      case "retry":
        stream.restart();
        break;
      case "bye":
        tabs.delete(port);
    }
  };
};

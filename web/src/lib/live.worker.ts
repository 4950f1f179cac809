/** Holds one event stream for all tabs of this browser. A browser opens at most six connections per server. */

import { LIVE_TYPES, type FromTab, type ToTab } from "./live_protocol";
import { EventStream } from "./stream";

const tabs = new Map<MessagePort, Set<string>>();

function send(port: MessagePort, message: ToTab): void {
  port.postMessage(message);
}

const stream = new EventStream({
  events(events) {
    for (const [port, watched] of tabs) {
      const wanted = events.filter((event) => !LIVE_TYPES.has(event.type) || watched.has(event.run_id));
      if (wanted.length) send(port, { kind: "events", events: wanted });
    }
  },
  state(state, since) {
    for (const port of tabs.keys()) send(port, { kind: "state", state, since });
  },
  reset() {
    for (const port of tabs.keys()) send(port, { kind: "reset" });
  },
});

(self as unknown as SharedWorkerGlobalScope).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  port.onmessage = (message: MessageEvent<FromTab>) => {
    switch (message.data.kind) {
      case "hello":
        tabs.set(port, new Set());
        if (stream.state === "signed_out") stream.restart();
        else stream.start();
        send(port, { kind: "state", state: stream.state, since: stream.since });
        break;
      case "watch":
        for (const run of message.data.runs) {
          const text = tabs.get(port)?.has(run) ? [] : stream.catchUp(run);
          if (text.length) send(port, { kind: "events", events: text });
        }
        tabs.set(port, new Set(message.data.runs));
        break;
      case "retry":
        stream.restart();
        break;
      case "bye":
        tabs.delete(port);
    }
  };
};

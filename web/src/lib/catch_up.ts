/** The text that a run is writing when its page opens. The stream of all runs sends only what follows. */

import { LIVE_TYPES, type LiveEvent } from "./live_protocol";
import { FrameReader } from "./sse";

const PATIENCE_MS = 800;

/** Return the live events of a run so far. */
export async function readWriting(runId: string, after: number): Promise<LiveEvent[]> {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), PATIENCE_MS);
  const found: LiveEvent[] = [];
  try {
    const response = await fetch(`/v1/runs/${encodeURIComponent(runId)}/events?after=${after}`, { signal: abort.signal, cache: "no-store" });
    if (response.status !== 200 || !response.body) return [];
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const frames = new FrameReader();
    while (!found.length) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const frame of frames.push(value)) if (LIVE_TYPES.has(frame.event)) found.push(JSON.parse(frame.data) as LiveEvent);
    }
  } catch {
    // the time is over, or the connection is lost: the stream of all runs goes on
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
  return found;
}

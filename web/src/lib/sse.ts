/** Reads server-sent events from a stream of text. */

export interface Frame {
  id: string | null;
  event: string;
  data: string;
}

/** Collects chunks of a stream and returns the frames that they complete. A comment returns none; a frame
 * that only carries an id has no data. */
export class FrameReader {
  #rest = "";

  push(chunk: string): Frame[] {
    const text = this.#rest + chunk;
    const frames: Frame[] = [];
    let start = 0;
    for (;;) {
      const end = text.indexOf("\n\n", start);
      if (end < 0) break;
      const frame = parseFrame(text.slice(start, end));
      if (frame) frames.push(frame);
      start = end + 2;
    }
    this.#rest = text.slice(start);
    return frames;
  }
}

function parseFrame(block: string): Frame | null {
  let id: string | null = null;
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("data: ")) data.push(line.slice(6));
    else if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("id: ")) id = line.slice(4);
  }
  return data.length || id !== null ? { id, event, data: data.join("\n") } : null;
}

const SILENCE_MS = 40_000; // the server sends a comment every 15 seconds

/** Yield the frames of each chunk of a stream, none for a comment. A stream that is silent for too long is aborted. */
export async function* readFrames(body: ReadableStream<Uint8Array>, abort: AbortController): AsyncGenerator<Frame[]> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  const frames = new FrameReader();
  for (;;) {
    const silence = setTimeout(() => abort.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    yield frames.push(value);
  }
}

const RETRY_MS = [250, 500, 1000, 2000, 4000, 5000];

/** Wait before the next try, longer after each failure. */
export function waitToRetry(failures: number): Promise<void> {
  const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? 5000;
  return new Promise((done) => setTimeout(done, wait));
}

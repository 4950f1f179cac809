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

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FollowedLoad, Throttle } from "./followed_load";
import type { LiveEvent } from "./live_protocol";

/** A stream of events that a test controls. */
class FakeSource {
  tell: (events: LiveEvent[]) => void = () => undefined;
  reset: () => void = () => undefined;
  isFollowed = false;

  follow(handler: (events: LiveEvent[]) => void, onReset?: () => void): () => void {
    this.tell = handler;
    this.reset = onReset ?? this.reset;
    this.isFollowed = true;
    return () => {
      this.isFollowed = false;
    };
  }

  ready = () => Promise.resolve();
}

const event = (sequence: number) => ({ sequence }) as LiveEvent;

/** Follow a source, and record each load and the events that are applied, in order. */
function record(source: FakeSource) {
  const log: string[] = [];
  const finish: (() => void)[] = [];
  const followed = new FollowedLoad(
    {
      load: () => {
        log.push("load");
        return new Promise((done) => finish.push(done));
      },
      apply: (events) => {
        for (const each of events) log.push(`event ${each.sequence}`);
        return events.some((each) => each.sequence >= 10);
      },
      delayMs: 100,
    },
    source,
  );
  const leave = followed.follow();
  const loaded = async () => {
    finish.shift()?.();
    await vi.advanceTimersByTimeAsync(0);
  };
  return { log, leave, loaded };
}

describe("what is loaded and then followed", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("applies events during a load to what was loaded", async () => {
    const source = new FakeSource();
    const { log, loaded } = record(source);
    await vi.advanceTimersByTimeAsync(0);
    source.tell([event(1)]);
    expect(log).toEqual(["load"]);
    await loaded();
    source.tell([event(2)]);
    expect(log).toEqual(["load", "event 1", "event 2"]);
  });

  it("loads again once for several events that ask for it, and after a gap", async () => {
    const source = new FakeSource();
    const { log, loaded } = record(source);
    await vi.advanceTimersByTimeAsync(0);
    await loaded();
    source.tell([event(10)]);
    source.tell([event(11)]);
    await vi.advanceTimersByTimeAsync(100);
    expect(log).toEqual(["load", "event 10", "event 11", "load"]);
    await loaded();
    source.reset();
    await vi.advanceTimersByTimeAsync(100);
    expect(log.slice(4)).toEqual(["load"]);
  });

  it("loads nothing after the page is left", async () => {
    const source = new FakeSource();
    const { log, loaded, leave } = record(source);
    await vi.advanceTimersByTimeAsync(0);
    source.tell([event(10)]);
    leave();
    await loaded();
    await vi.advanceTimersByTimeAsync(1000);
    expect([log, source.isFollowed]).toEqual([["load"], false]);
  });
});

describe("a throttle", () => {
  it("calls once for several requests, and not after it is cancelled", () => {
    vi.useFakeTimers();
    const call = vi.fn();
    const throttle = new Throttle(call, 10);
    throttle.request();
    throttle.request();
    vi.advanceTimersByTime(50);
    throttle.request();
    throttle.cancel();
    vi.advanceTimersByTime(50);
    expect(call).toHaveBeenCalledTimes(1);
    vi.useRealTimers();
  });
});

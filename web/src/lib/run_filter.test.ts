import { expect, test } from "vitest";
import { findStart, findUnknown, readFilter } from "./run_filter";

test("periods begin at midnight, some time ago, or at a time", () => {
  const now = new Date(2026, 10, 19, 15, 30);
  expect(findStart("today", now)).toBe(new Date(2026, 10, 19).toISOString());
  expect(findStart("hour", now)).toBe(new Date(2026, 10, 19, 14, 30).toISOString());
  expect(findStart("2026-11-01T10:00", now)).toBe(new Date("2026-11-01T10:00").toISOString());
  expect(findStart(null, now)).toBeUndefined();
});

test("an unknown value of a filter is named", () => {
  expect(findUnknown(new URLSearchParams("status=failed&since=week&order=cost"))).toBeNull();
  expect(findUnknown(new URLSearchParams("since=tomorrow"))).toEqual(["since", "tomorrow"]);
  expect(findUnknown(new URLSearchParams("order=colour"))).toEqual(["order", "colour"]);
});

test("all filters of an address are sent", () => {
  const sent = readFilter(new URLSearchParams("agent=a&tag=x&tag=y&cost=0.1&text=hello&user=u"));
  expect(sent).toMatchObject({ agent: "a", tag: ["x", "y"], min_cost: 0.1, text: "hello", user: "u" });
});

/** Numbers, times and names as people read them. */

const money = new Intl.NumberFormat("en", {
  style: "currency",
  currency: "USD",
  minimumFractionDigits: 2,
  maximumFractionDigits: 2,
});
const smallMoney = new Intl.NumberFormat("en", {
  style: "currency",
  currency: "USD",
  minimumFractionDigits: 2,
  maximumFractionDigits: 4,
});
const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayYear = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

export function formatCost(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "$0";
  return value < 0.1 ? smallMoney.format(value) : money.format(value);
}

export function formatCount(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : whole.format(value);
}

export function formatCompact(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value < 10_000 ? whole.format(value) : compact.format(value);
}

export function formatDuration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

interface Clock {
  active_ms?: number;
  active_since?: number | null;
}

/** How long a run has been active, without the time in which it waited. `now` is in seconds. */
export function elapsedMs({ active_ms = 0, active_since }: Clock, now: number): number {
  return active_ms + (active_since == null ? 0 : Math.max(0, (now - active_since) * 1000));
}

/** A time, short: today only the hour, this year without the year. */
export function formatTime(value: string | number | Date | null | undefined, now = new Date()): string {
  if (value === null || value === undefined || value === "") return "–";
  const at = new Date(value);
  if (Number.isNaN(at.getTime())) return "–";
  const isThisYear = at.getFullYear() === now.getFullYear();
  if (isThisYear && at.getMonth() === now.getMonth() && at.getDate() === now.getDate()) return clock.format(at);
  const date = isThisYear ? day.format(at) : dayYear.format(at);
  return `${date}, ${clock.format(at).slice(0, 5)}`;
}

export function formatAge(value: string | number | Date, now = Date.now()): string {
  const seconds = Math.max(0, (now - new Date(value).getTime()) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} kB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** The kind and the end of an id. Its beginning is a time, which ids of the same moment share. */
export function shortId(id: string): string {
  const kind = id.slice(0, id.indexOf("_") + 1);
  return `${kind}…${id.slice(-8)}`;
}

export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** A sentence that begins with a capital letter. */
export function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

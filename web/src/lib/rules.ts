import { texts } from "../texts";
import { revealHidden } from "./markdown";

const EXACT_PREFIX = "exactly: ";

/** The calls that a remembered approval covers, in words. */
export function describeRule(tool: string, pattern: string): string {
  if (pattern.startsWith(EXACT_PREFIX))
    return texts.approvals.exactly(revealHidden(pattern.slice(EXACT_PREFIX.length)));
  return pattern === "*" ? texts.approvals.every(tool) : texts.approvals.fitting(tool, revealHidden(pattern));
}

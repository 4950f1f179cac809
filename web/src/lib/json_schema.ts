/** Checks values against the parts of JSON Schema that the description of the API uses. */

export interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema | boolean;
  prefixItems?: Schema[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  default?: unknown;
  description?: string;
  title?: string;
  format?: string;
}

export interface Fault {
  path: string;
  message: string;
}

export type Definitions = Record<string, Schema>;

export function resolve(schema: Schema, definitions: Definitions): Schema {
  const name = schema.$ref?.split("/").pop();
  return name ? (definitions[name] ?? {}) : schema;
}

/** Return what is wrong with a value; an empty list if nothing is. */
export function check(value: unknown, schema: Schema, definitions: Definitions, path = ""): Fault[] {
  const rule = resolve(schema, definitions);
  const choices = rule.anyOf ?? rule.oneOf;
  if (choices) {
    const tries = choices.map((choice) => check(value, choice, definitions, path));
    const best = tries.reduce((one, other) => (other.length < one.length ? other : one));
    if (!best.length) return [];
    const fitting = tries.find((_, at) => kindFits(value, resolve(choices[at] ?? {}, definitions)));
    return (
      fitting ?? [
        { path, message: `must be ${choices.map((choice) => nameOf(resolve(choice, definitions))).join(" or ")}` },
      ]
    );
  }
  if (rule.enum && !rule.enum.includes(value))
    return [{ path, message: `must be one of ${rule.enum.map(String).join(", ")}` }];
  if (!kindFits(value, rule)) return [{ path, message: `must be ${nameOf(rule)}` }];
  const faults: Fault[] = [];
  if (typeof value === "number") {
    if (rule.minimum !== undefined && value < rule.minimum)
      faults.push({ path, message: `must be ${rule.minimum} or more` });
    if (rule.exclusiveMinimum !== undefined && value <= rule.exclusiveMinimum)
      faults.push({ path, message: `must be more than ${rule.exclusiveMinimum}` });
    if (rule.maximum !== undefined && value > rule.maximum)
      faults.push({ path, message: `must be ${rule.maximum} or less` });
  }
  if (typeof value === "string") {
    if (rule.minLength !== undefined && value.length < rule.minLength)
      faults.push({ path, message: `needs ${rule.minLength} characters or more` });
    if (rule.maxLength !== undefined && value.length > rule.maxLength)
      faults.push({ path, message: `has more than ${rule.maxLength} characters` });
  }
  if (Array.isArray(value) && typeof rule.items === "object") {
    const items = rule.items;
    value.forEach((each, at) => faults.push(...check(each, items, definitions, `${path}[${at}]`)));
  } else if (value !== null && typeof value === "object" && !Array.isArray(value))
    faults.push(...checkObject(value, rule, definitions, path));
  return faults;
}

function checkObject(value: object, rule: Schema, definitions: Definitions, path: string): Fault[] {
  const faults: Fault[] = [];
  const known = rule.properties;
  for (const name of rule.required ?? []) if (!(name in value)) faults.push({ path, message: `needs \`${name}\`` });
  for (const [name, each] of Object.entries(value)) {
    const inside = path ? `${path}.${name}` : name;
    if (known?.[name]) faults.push(...check(each, known[name], definitions, inside));
    else if (typeof rule.additionalProperties === "object")
      faults.push(...check(each, rule.additionalProperties, definitions, inside));
    else if (known)
      faults.push({ path: inside, message: `is not a known setting; known: ${Object.keys(known).join(", ")}` });
  }
  return faults;
}

function kindFits(value: unknown, rule: Schema): boolean {
  if (rule.const !== undefined) return value === rule.const;
  const kinds = rule.type === undefined ? [] : Array.isArray(rule.type) ? rule.type : [rule.type];
  return !kinds.length || kinds.some((kind) => isKind(value, kind));
}

function isKind(value: unknown, kind: string): boolean {
  switch (kind) {
    case "null":
      return value === null;
    case "integer":
      return Number.isInteger(value);
    case "number":
      return typeof value === "number";
    case "string":
      return typeof value === "string";
    case "boolean":
      return typeof value === "boolean";
    case "array":
      return Array.isArray(value);
    case "object":
      return value !== null && typeof value === "object" && !Array.isArray(value);
    default:
      return true;
  }
}

function nameOf(rule: Schema): string {
  if (rule.enum) return `one of ${rule.enum.map(String).join(", ")}`;
  const types = Array.isArray(rule.type) ? rule.type : rule.type ? [rule.type] : [];
  return (
    types.map((type) => (type === "null" ? type : `${/^[aio]/.test(type) ? "an" : "a"} ${type}`)).join(" or ") ||
    "something else"
  );
}

/** An example of a value that fits, for documentation. */
export function exampleOf(schema: Schema, definitions: Definitions, depth = 0): unknown {
  const rule = resolve(schema, definitions);
  if (rule.default !== undefined && rule.default !== null) return rule.default;
  if (rule.enum) return rule.enum[0];
  const choice = (rule.anyOf ?? rule.oneOf)?.find((each) => resolve(each, definitions).type !== "null");
  if (choice) return exampleOf(choice, definitions, depth);
  const kind = Array.isArray(rule.type) ? rule.type[0] : rule.type;
  switch (kind) {
    case "string":
      return rule.format === "date-time" ? "2026-11-16T09:00:00Z" : "text";
    case "integer":
      return rule.minimum ?? 1;
    case "number":
      return rule.minimum ?? 1.0;
    case "boolean":
      return true;
    case "array":
      return typeof rule.items === "object" && depth < 3 ? [exampleOf(rule.items, definitions, depth + 1)] : [];
    case "object": {
      const required =
        depth === 0 ? new Set(rule.required ?? Object.keys(rule.properties ?? {})) : new Set(rule.required ?? []);
      return Object.fromEntries(
        Object.entries(rule.properties ?? {})
          .filter(([name]) => required.has(name))
          .map(([name, each]) => [name, exampleOf(each, definitions, depth + 1)]),
      );
    }
    default:
      return null;
  }
}

/** Colours for code: comments, texts, numbers and keywords, by what families of languages have in common. Every step
 * takes time in proportion to the length of the code. */

export type TokenKind = "plain" | "comment" | "text" | "number" | "keyword" | "added" | "removed";

export interface Token {
  kind: TokenKind;
  text: string;
}

/** Longer code is shown in one colour. */
const LONGEST = 20_000;

const WORDS = {
  python: [
    "and as assert async await break case class continue def del elif else except finally for from global",
    "if import in is lambda match nonlocal not or pass raise return try while with yield None True False",
    "self",
  ],
  script: [
    "abstract as async await break case catch class const continue debugger declare default delete do",
    "else enum export extends false finally for from function get if implements import in instanceof",
    "interface let new null of private protected public readonly return set static super switch this",
    "throw true try type typeof undefined var void while yield",
  ],
  c: [
    "abstract auto bool boolean break case catch char class const continue crate default defer delete do",
    "double else enum export extends extern false final finally float fn for func fun go goto if impl",
    "implements import in inline int interface internal let long loop match mod module mut namespace new",
    "nil null nullptr object operator override package private protected pub public range return self",
    "short signed sizeof static string struct super switch template this throw throws trait true try type",
    "typedef typename union unsafe unsigned use using val var virtual void volatile when where while",
  ],
  shell: [
    "case cd do done echo elif else esac exit export fi for function if in local read return select set",
    "shift source sudo then trap unset until while",
  ],
  sql: [
    "add all alter and as asc begin between by case check column commit constraint create default delete",
    "desc distinct drop else end exists foreign from full function group having if in index inner insert",
    "into is join key left like limit not null on or order outer primary references returning right",
    "rollback select set table then transaction trigger union unique update using values view when where",
    "with",
  ],
  data: ["true false null yes no on off"],
};

const COMMENTS = {
  hash: String.raw`#[^\n]*`,
  slash: String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
  dash: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
  none: "(?!)",
};

const FAMILIES: [names: string, words: keyof typeof WORDS, comments: keyof typeof COMMENTS][] = [
  ["python py python3 ruby rb", "python", "hash"],
  ["js javascript jsx ts typescript tsx mjs svelte vue", "script", "slash"],
  ["c h cpp c++ cc cs csharp go golang java kotlin kt rust rs swift scala php dart proto zig css scss", "c", "slash"],
  ["sh bash zsh shell console fish dockerfile docker makefile make", "shell", "hash"],
  ["sql postgresql postgres sqlite mysql lua", "sql", "dash"],
  ["yaml yml toml ini conf env", "data", "hash"],
  ["json jsonc json5 jsonl", "data", "slash"],
];

const STRINGS = [
  String.raw`"""[\s\S]*?(?:"""|$)`,
  String.raw`'''[\s\S]*?(?:'''|$)`,
  String.raw`"(?:[^"\\\n]|\\.)*"?`,
  String.raw`'(?:[^'\\\n]|\\.)*'`,
  "`(?:[^`\\\\]|\\\\.)*`?",
].join("|");
const NUMBERS = String.raw`\b(?:0x[\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\b`;

interface Grammar {
  pattern: RegExp;
  words: ReadonlySet<string>;
  isCaseless: boolean;
}

const grammars = new Map<string, Grammar>();

function findGrammar(language: string): Grammar | undefined {
  const name = language.toLowerCase();
  const known = grammars.get(name);
  if (known) return known;
  const family = FAMILIES.find(([names]) => names.split(" ").includes(name));
  if (!family) return undefined;
  const [, words, comments] = family;
  const pattern = new RegExp(
    `(?<comment>${COMMENTS[comments]})|(?<text>${STRINGS})|(?<number>${NUMBERS})|(?<word>[A-Za-z_$][\\w$]*)`,
    "g",
  );
  const grammar = { pattern, words: new Set(WORDS[words].join(" ").split(" ")), isCaseless: words === "sql" };
  grammars.set(name, grammar);
  return grammar;
}

/** Return the code in coloured parts. Together they are the code. */
export function highlight(code: string, language: string): Token[] {
  if (code.length > LONGEST) return [{ kind: "plain", text: code }];
  if (["diff", "patch"].includes(language.toLowerCase())) return highlightDiff(code);
  const grammar = findGrammar(language);
  if (!grammar) return [{ kind: "plain", text: code }];
  const tokens: Token[] = [];
  const push = (kind: TokenKind, text: string) => {
    const last = tokens.at(-1);
    if (!text) return;
    if (last?.kind === kind) last.text += text;
    else tokens.push({ kind, text });
  };
  let at = 0;
  for (const found of code.matchAll(grammar.pattern)) {
    push("plain", code.slice(at, found.index));
    push(kindOf(found, grammar), found[0]);
    at = found.index + found[0].length;
  }
  push("plain", code.slice(at));
  return tokens;
}

function kindOf({ groups }: RegExpMatchArray, { words, isCaseless }: Grammar): TokenKind {
  if (groups?.comment !== undefined) return "comment";
  if (groups?.text !== undefined) return "text";
  if (groups?.number !== undefined) return "number";
  const word = groups?.word ?? "";
  return words.has(isCaseless ? word.toLowerCase() : word) ? "keyword" : "plain";
}

function highlightDiff(code: string): Token[] {
  return code.split(/(?<=\n)/).map((text) => ({
    kind: /^\+(?!\+\+ )/.test(text) ? "added" : /^-(?!-- )/.test(text) ? "removed" : "plain",
    text,
  }));
}

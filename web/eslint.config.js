import js from "@eslint/js";
import svelte from "eslint-plugin-svelte";
import globals from "globals";
import { parser, configs } from "typescript-eslint";
import svelteConfig from "./svelte.config.js";

export default [
  { ignores: ["src/schema.d.ts", "public/"] },
  js.configs.recommended,
  ...configs.recommended,
  ...svelte.configs.recommended,
  {
    languageOptions: { globals: { ...globals.browser, ...globals.node } },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off", // svelte-check reports it, and knows the types
      "max-len": ["error", { code: 120, tabWidth: 2 }],
      "svelte/require-each-key": "off", // most lists only grow, and then a row is its place
      "svelte/prefer-svelte-reactivity": "off", // these are local variables, which nothing observes
      eqeqeq: ["error", "always", { null: "ignore" }],
    },
  },
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser, extraFileExtensions: [".svelte"], svelteConfig } },
  },
];

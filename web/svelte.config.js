import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

/** Trees of elements instead of HTML strings: nothing is parsed as HTML at run time. */
export default { preprocess: vitePreprocess(), compilerOptions: { runes: true, fragments: "tree" } };

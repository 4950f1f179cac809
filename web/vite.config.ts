import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [svelte()],
  base: "/",
  build: {
    outDir: "../src/treadle/surfaces/http/dashboard",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    cssCodeSplit: true,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  worker: { format: "es" },
  test: { include: ["src/**/*.test.ts"] },
  server: { proxy: { "/v1": "http://127.0.0.1:8321" } },
});

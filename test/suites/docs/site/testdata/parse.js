// Reads a JSON array of Mermaid diagrams from standard input, and fails with a message for each that Mermaid cannot parse.
// usage: node parse.js MERMAID_BUNDLE
const fs = require("node:fs");
const vm = require("node:vm");

vm.runInThisContext(fs.readFileSync(process.argv[2], "utf8"));

(async () => {
  for (const diagram of JSON.parse(fs.readFileSync(0, "utf8"))) {
    try {
      await globalThis.mermaid.parse(diagram);
    } catch (error) {
      console.error(`${diagram}\n${error.message}`);
      process.exitCode = 1;
    }
  }
})();

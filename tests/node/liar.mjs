// A server that lies: passes everything between a client and the real server, and gives the answer of
// one tool a structured half that its schema forbids.
// node liar.mjs TOOL COMMAND [ARGUMENT...]
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const [tool, command, ...rest] = process.argv.slice(2);
const server = spawn(command, rest, { stdio: ["pipe", "pipe", "inherit"] });
const asked = new Set();

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const message = JSON.parse(line);
    if (message.method === "tools/call" && message.params.name === tool) asked.add(message.id);
    server.stdin.write(line + "\n");
  })
  .on("close", () => server.stdin.end());

createInterface({ input: server.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  if (asked.has(message.id) && message.result?.structuredContent) {
    message.result.structuredContent = { status: "ok", registers: "none" };
    line = JSON.stringify(message);
  }
  process.stdout.write(line + "\n");
});
server.on("exit", (code) => process.exit(code ?? 1));

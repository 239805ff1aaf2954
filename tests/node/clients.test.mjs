// The official TypeScript clients, both release lines, drive every tool over stdio, once well and once
// badly. Their own validators check each result; Ajv (JSON Schema 2020-12) checks it again here.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { Client as ClientV2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Ajv2020 } from "ajv/dist/2020.js";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const binary = process.env.WINDBG_MCP_BINARY ?? join(root, "target/release/windbg-mcp");
assert.ok(existsSync(binary), `${binary} is missing: cargo build --release --bin windbg-mcp`);
const table = JSON.parse(readFileSync(join(root, "tests/calls.json"), "utf8"));

const info = { name: "windbg-mcp-tests", version: "1" };
const clients = {
  "sdk 1.x": () => [new ClientV1(info), StdioV1],
  "client 2.x, handshake": () => [new ClientV2(info), StdioV2],
  "client 2.x, newest": () => [new ClientV2(info, { versionNegotiation: { mode: "auto" } }), StdioV2],
};

// Runs `body` with a client connected to the server that `command` starts.
async function connected(make, command, args, body) {
  const [client, Stdio] = make();
  await client.connect(new Stdio({ command, args, env: { PATH: process.env.PATH }, stderr: "ignore" }));
  try {
    return await body(client);
  } finally {
    await client.close();
  }
}

// The bundled user dump with its image and PDB, under a name with a space and Unicode in it.
function dumps(t) {
  const base = mkdtempSync(join(tmpdir(), "windbg-mcp-"));
  t.after(() => rmSync(base, { recursive: true }));
  const folder = join(base, "dumps \u00e4\u65e5");
  mkdirSync(folder);
  for (const name of ["crash.dmp", "crash.exe", "crash.pdb"]) {
    copyFileSync(join(root, "fixtures", name), join(folder, name));
  }
  return folder;
}

function fill(value, names) {
  if (typeof value === "string") {
    for (const [name, text] of Object.entries(names)) value = value.replaceAll(`{${name}}`, text);
    return value;
  }
  if (Array.isArray(value)) return value.map((inner) => fill(inner, names));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, fill(inner, names)]));
  }
  return value;
}

const ajv = new Ajv2020({ strict: false });

// A result as the contract has it: text and structure agree, and the schema holds.
function check(tool, result) {
  const text = result.content.map((block) => block.text).join("");
  assert.ok(text, tool.name);
  const structured = result.structuredContent;
  if (result.isError) {
    assert.equal(structured.status, "error");
    assert.equal(structured.error.message, text);
  } else if (tool.outputSchema) {
    assert.equal(structured.status, "ok", tool.name);
  }
  if (structured && tool.outputSchema) {
    assert.ok(ajv.validate(tool.outputSchema, structured), `${tool.name}: ${ajv.errorsText()}`);
  }
  return structured;
}

async function everyTool(client, folder) {
  const list = (await client.listTools()).tools;
  const tools = Object.fromEntries(list.map((tool) => [tool.name, tool]));
  assert.deepEqual(Object.keys(tools).sort(), Object.keys(table).sort(), "tests/calls.json lists every tool");
  const names = { dump: join(folder, "crash.dmp"), folder };
  const call = async (name, args) => {
    const result = await client.callTool({ name, arguments: args });
    check(tools[name], result);
    return result;
  };
  const open = async (path) => {
    const result = await call("open_dump", { path });
    assert.ok(!result.isError, JSON.stringify(result));
    return result.structuredContent.session_id;
  };
  const files = { user: names.dump, kernel: join(root, "fixtures/kernel.dmp"), image: join(folder, "crash.exe") };
  const sessions = {};
  for (const [kind, path] of Object.entries(files)) sessions[kind] = await open(path);
  for (const [name, row] of Object.entries(table)) {
    const session = sessions[row.on] ?? sessions.user;
    const routed = tools[name].inputSchema.properties.session_id ? { session_id: session } : {};
    if (row.on in sessions) {
      const good = await call(name, { ...routed, ...fill(row.good, names) });
      assert.ok(!good.isError, `${name}: ${good.content[0].text}`);
    }
    const bad = await call(name, { ...routed, ...fill(row.bad, names) });
    assert.ok(bad.isError, `${name} accepted ${JSON.stringify(row.bad)}`);
  }
  for (const session of Object.values(sessions)) {
    assert.equal((await call("end_session", { session_id: session })).structuredContent.released, true);
  }
}

for (const [name, make] of Object.entries(clients)) {
  test(`${name}: every tool once well and once badly`, async (t) => {
    await connected(make, binary, [], async (client) => {
      const revision = client.getNegotiatedProtocolVersion?.();
      if (name.endsWith("newest")) assert.equal(revision, "2026-07-28");
      await everyTool(client, dumps(t));
    });
  });

  test(`${name}: prompts, resources, completions`, async (t) => {
    const folder = dumps(t);
    await connected(make, binary, ["--dump-dir", folder], async (client) => {
      const prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
      assert.ok(prompts.includes("triage-dump"), prompts);
      const prompt = await client.getPrompt({ name: "triage-dump", arguments: { path: "a.dmp" } });
      assert.match(prompt.messages[0].content.text, /open_dump/);
      const uris = (await client.listResources()).resources.map((resource) => resource.uri);
      assert.ok(uris.includes("windbg://sessions"), uris);
      assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 2);
      const page = await client.readResource({ uri: "windbg://docs/surface" });
      assert.match(page.contents[0].text, /^# /);
      const typed = join(folder, "crash.d");
      const found = await client.complete({
        ref: { type: "ref/prompt", name: "triage-dump" },
        argument: { name: "path", value: typed },
      });
      assert.deepEqual(found.completion.values, [join(folder, "crash.dmp")]);
    });
  });

  test(`${name}: a tool that never was is a protocol error`, async () => {
    await connected(make, binary, [], async (client) => {
      await client.listTools();
      await assert.rejects(client.callTool({ name: "registres", arguments: {} }), (error) => {
        assert.match(error.message, /registers/);
        return error.code === -32602;
      });
    });
  });

  test(`${name}: a planted wrong result is rejected`, async () => {
    const lie = [join(here, "liar.mjs"), "registers", binary];
    await connected(make, process.execPath, lie, async (client) => {
      const tool = (await client.listTools()).tools.find((tool) => tool.name === "registers");
      assert.ok(!ajv.validate(tool.outputSchema, { status: "ok", registers: "none" }));
      await client.callTool({ name: "open_dump", arguments: { path: join(root, "fixtures/crash.dmp") } });
      await assert.rejects(client.callTool({ name: "registers", arguments: {} }), /schema|structured|output/i);
    });
  });
}

"""The official Python client drives every tool over stdio, once well and once badly, in both
protocol eras; its own validator and ours check every result against the advertised schema."""

import json
import os
import pathlib
import signal
import sys

import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.types import PromptReference

pytestmark = pytest.mark.anyio

MODES = ["auto", "legacy"]

# A call of every tool that works and one that must fail; what the good call needs is `on`. What a dump
# cannot serve ("live") is refused here and called well in test_wine.py, where a program runs.
TABLE = json.loads((pathlib.Path(__file__).resolve().parents[1] / "calls.json").read_text())


def calls(on):
    return {name: (row["good"], row["bad"]) for name, row in TABLE.items() if row["on"] == on}


CALLS = calls("user")
KERNEL_CALLS = calls("kernel")
IMAGE_CALLS = calls("image")
LIVE_CALLS = {name: bad for name, (_, bad) in calls("live").items()}


def connect(binary, mode):
    parameters = StdioServerParameters(command=binary, args=[], env={"PATH": os.environ["PATH"]})
    return Client(stdio_client(parameters), mode=mode)


def fill(arguments, **values):
    def filled(value):
        if isinstance(value, str):
            for name, text in values.items():
                value = value.replace("{%s}" % name, text)
        return value

    return {key: filled(value) for key, value in arguments.items()}


def check(tool, result):
    """A result as the contract has it: text and structure agree, and the schema holds."""
    text = "".join(block.text for block in result.content)
    structured = result.structured_content
    assert text
    if result.is_error:
        assert structured["status"] == "error"
        assert structured["error"]["message"] == text
    elif tool.output_schema is not None:
        assert structured["status"] == "ok"
    if structured is not None and tool.output_schema is not None:
        jsonschema.validate(structured, tool.output_schema, cls=jsonschema.Draft202012Validator)
    return structured


async def open_dump(client, tools, path):
    result = await client.call_tool("open_dump", {"path": path})
    assert not result.is_error, result.content
    return check(tools["open_dump"], result)["session_id"]


async def call_each(client, tools, session, calls, folder):
    for name, (good, bad) in calls.items():
        takes_session = "session_id" in tools[name].input_schema.get("properties", {})
        routed = {"session_id": session} if takes_session else {}
        result = await client.call_tool(name, {**routed, **fill(good, folder=folder)})
        check(tools[name], result)
        assert not result.is_error, f"{name}: {result.content}"
        result = await client.call_tool(name, {**routed, **fill(bad, folder=folder)})
        check(tools[name], result)
        assert result.is_error, f"{name} accepted {bad}: {result.content}"
        result = await client.call_tool(name, {**routed, **fill(good, folder=folder), "zz_unknown": 1})
        assert result.is_error and result.structured_content["error"]["category"] == "invalid_argument"
        assert "zz_unknown" in result.structured_content["error"]["message"]


@pytest.mark.parametrize("mode", MODES)
async def test_every_tool_once_well_and_once_badly(binary, user_dump, kernel_dump, mode):
    async with connect(binary, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        served = {"open_dump", "end_session", *CALLS, *KERNEL_CALLS, *IMAGE_CALLS, *LIVE_CALLS}
        assert set(tools) == served, "a tool is served that this test does not call"

        bad = await client.call_tool("open_dump", {"path": user_dump + ".nonesuch"})
        assert bad.is_error and check(tools["open_dump"], bad)["target"] == "no"
        assert user_dump in bad.structured_content["error"]["message"]

        user = await open_dump(client, tools, user_dump)
        await call_each(client, tools, user, CALLS, os.path.dirname(user_dump))
        for name, arguments in LIVE_CALLS.items():
            result = await client.call_tool(name, arguments)
            check(tools[name], result)
            assert result.is_error, f"{name}: {result.content}"
        kernel = await open_dump(client, tools, kernel_dump)
        await call_each(client, tools, kernel, KERNEL_CALLS, "")

        image = await open_dump(client, tools, user_dump.replace("crash.dmp", "crash.exe"))
        await call_each(client, tools, image, IMAGE_CALLS, "")

        for session in (user, kernel, image):
            result = await client.call_tool("end_session", {"session_id": session})
            assert not result.is_error and check(tools["end_session"], result)["released"] is True
        again = await client.call_tool("end_session", {"session_id": user})
        assert again.is_error and check(tools["end_session"], again)["error"]["category"] == "stale_session"


async def test_a_tool_that_never_was_is_a_protocol_error(binary):
    async with connect(binary, "auto") as client:
        with pytest.raises(MCPError) as error:
            await client.call_tool("registres", {})
        assert error.value.code == -32602
        assert "registers" in error.value.message


async def test_a_tool_of_the_product_that_is_not_here_says_so(binary):
    async with connect(binary, "auto") as client:
        result = await client.call_tool("step_back", {})
        assert result.is_error
        assert result.structured_content["error"]["category"] == "not_served"


async def test_a_killed_worker_costs_its_session_only(binary, user_dump, kernel_dump):
    async with connect(binary, "auto") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        doomed = await open_dump(client, tools, user_dump)
        other = await open_dump(client, tools, kernel_dump)
        status = await client.call_tool("session_status", {"session_id": doomed})
        os.kill(status.structured_content["sessions"][0]["engine_pid"], signal.SIGKILL)
        result = await client.call_tool("registers", {"session_id": doomed})
        assert result.is_error
        assert result.structured_content["error"]["category"] in ("worker_lost", "stale_session")
        result = await client.call_tool("registers", {"session_id": other})
        assert not result.is_error


async def test_the_list_is_the_same_bytes_twice(binary):
    pages = []
    for _ in range(2):
        async with connect(binary, "auto") as client:
            pages.append((await client.list_tools()).model_dump_json())
    assert pages[0] == pages[1]


@pytest.mark.parametrize("mode", MODES)
async def test_a_planted_wrong_result_is_rejected(binary, user_dump, mode):
    """Neither the validator above nor the client's own is a rubber stamp."""
    liar = str(pathlib.Path(__file__).with_name("liar.py"))
    parameters = StdioServerParameters(
        command=sys.executable, args=[liar, "registers", binary], env={"PATH": os.environ["PATH"]}
    )
    async with Client(stdio_client(parameters), mode=mode) as client:
        tools = {t.name: t for t in (await client.list_tools()).tools}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"status": "ok", "registers": "none"}, tools["registers"].output_schema)
        await open_dump(client, tools, user_dump)
        with pytest.raises(Exception, match="(?i)schema|structured|output|valid"):
            await client.call_tool("registers", {})


async def test_prompts_resources_and_completions(binary, user_dump):
    folder = os.path.dirname(user_dump)
    parameters = StdioServerParameters(
        command=binary, args=["--dump-dir", folder], env={"PATH": os.environ["PATH"]}
    )
    async with Client(stdio_client(parameters)) as client:
        assert "triage-dump" in {prompt.name for prompt in (await client.list_prompts()).prompts}
        prompt = await client.get_prompt("triage-dump", {"path": user_dump})
        assert "open_dump" in prompt.messages[0].content.text
        assert "windbg://sessions" in {str(row.uri) for row in (await client.list_resources()).resources}
        page = await client.read_resource("windbg://docs/surface")
        assert page.contents[0].text.startswith("# ")
        found = await client.complete(
            PromptReference(type="ref/prompt", name="triage-dump"),
            {"name": "path", "value": user_dump[:-2]},
        )
        assert found.completion.values == [user_dump]

# pyright: basic, reportDeprecated=false
"""The tools, resources and prompts that the conformance suite expects of a server, on our mount at `/mcp`.

Treadle's own server offers agents. These fixtures replace them, so that the suite can exercise the transport, the
authentication and the sessions that both share."""

import asyncio
import hashlib
import hmac
import json
import warnings
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
KEY = b"fixture"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
USER = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
TITLED = [
    {"const": f"value{number}", "title": f"{word} Option"} for number, word in enumerate(("First", "Second"), 1)
]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}
EMPTY = {"type": "object", "properties": {}}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
TOOLS = {
    **dict.fromkeys(
        (
            *("test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource"),
            *("test_multiple_content_types", "test_tool_with_logging", "test_error_handling"),
            *("test_tool_with_progress", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"),
            *("test_input_required_result_elicitation", "test_input_required_result_sampling"),
            *("test_input_required_result_list_roots", "test_input_required_result_request_state"),
            *("test_input_required_result_multiple_inputs", "test_input_required_result_multi_round"),
            *("test_input_required_result_tampered_state", "test_input_required_result_capabilities"),
            *("test_missing_capability", "test_streaming_elicitation", "test_logging_tool"),
        ),
        EMPTY,
    ),
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "json_schema_2020_12_tool": SCHEMA_2020,
}


def text(value: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=value)], **more)


def elicitation(message: str, schema: Any) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(prompt: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=50))


def sign(state: str) -> str:
    return f"{state}.{hmac.new(KEY, state.encode(), hashlib.sha256).hexdigest()}"


def verify(state: str | None) -> str:
    plain = (state or "").rpartition(".")[0]
    if state is None or not hmac.compare_digest(sign(plain), state):
        raise MCPError(types.INVALID_PARAMS, "The request state is not valid")
    return plain


def require(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def has(ctx: Any, **capability: Any) -> bool:
    return ctx.session.check_client_capability(types.ClientCapabilities(**capability))


async def elicit(ctx: Any, message: str, schema: Any) -> types.CallToolResult:
    answer = await ctx.session.elicit_form(message, schema, ctx.request_id)
    content = json.dumps(answer.content)
    return text(f"Elicitation completed: action={answer.action}, content={content}")


class FixtureServer:
    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            self.server: Server[Any] = Server(
                "fixtures",
                version="1",
                on_list_tools=self.list_tools,
                on_call_tool=self.call,
                on_list_resources=self.list_resources,
                on_list_resource_templates=self.list_templates,
                on_read_resource=self.read,
                on_subscribe_resource=self.accept,
                on_unsubscribe_resource=self.accept,
                on_list_prompts=self.list_prompts,
                on_get_prompt=self.prompt,
                on_completion=self.complete,
                on_set_logging_level=self.accept,
            )

    async def accept(self, ctx: Any, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    async def complete(self, ctx: Any, params: Any) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=["paris", "park"], total=2, has_more=False))

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        tools = [types.Tool(name=name, description=name, input_schema=schema) for name, schema in TOOLS.items()]
        return types.ListToolsResult(tools=tools)

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        name = params.name
        if name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
        if name.startswith("test_input_required_result"):
            return self.input_required(ctx, params)
        method = getattr(self, name, None)
        return text("ok") if method is None else await method(ctx, params.arguments or {})

    # ── Content ──

    async def test_simple_text(self, ctx: Any, arguments: Any) -> Any:
        return text("This is a simple text response for testing.")

    async def test_image_content(self, ctx: Any, arguments: Any) -> Any:
        return types.CallToolResult(content=[types.ImageContent(data=PIXEL, mime_type="image/png")])

    async def test_audio_content(self, ctx: Any, arguments: Any) -> Any:
        return types.CallToolResult(content=[types.AudioContent(data=SOUND, mime_type="audio/wav")])

    async def test_embedded_resource(self, ctx: Any, arguments: Any) -> Any:
        return types.CallToolResult(
            content=[resource("test://embedded-resource", "This is an embedded resource content.")]
        )

    async def test_multiple_content_types(self, ctx: Any, arguments: Any) -> Any:
        data = json.dumps({"test": "data", "value": 123})
        return types.CallToolResult(
            content=[
                types.TextContent(text="Multiple content types test:"),
                types.ImageContent(data=PIXEL, mime_type="image/png"),
                resource("test://mixed-content-resource", data, "application/json"),
            ]
        )

    async def test_error_handling(self, ctx: Any, arguments: Any) -> Any:
        return text("This tool intentionally returns an error for testing", is_error=True)

    async def test_tool_with_logging(self, ctx: Any, arguments: Any) -> Any:
        for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
            await asyncio.sleep(0.05)
        return text("Logged.")

    test_logging_tool = test_tool_with_logging

    async def test_tool_with_progress(self, ctx: Any, arguments: Any) -> Any:
        for done in (0, 50, 100):
            await ctx.session.report_progress(done, 100)
            await asyncio.sleep(0.05)
        return text("Done.")

    # ── Requests to the client, before 2026 ──

    async def test_sampling(self, ctx: Any, arguments: Any) -> Any:
        if not has(ctx, sampling=types.SamplingCapability()):
            return text("The client does not support sampling.", is_error=True)
        message = types.SamplingMessage(role="user", content=types.TextContent(text=arguments["prompt"]))
        answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
        return text(f"LLM response: {getattr(answer.content, 'text', '')}")

    async def test_elicitation(self, ctx: Any, arguments: Any) -> Any:
        answer = await ctx.session.elicit_form(arguments["message"], USER, ctx.request_id)
        return text(f"User response: <action: {answer.action}, content: {json.dumps(answer.content)}>")

    async def test_elicitation_sep1034_defaults(self, ctx: Any, arguments: Any) -> Any:
        return await elicit(ctx, "Please confirm.", DEFAULTS)

    async def test_elicitation_sep1330_enums(self, ctx: Any, arguments: Any) -> Any:
        return await elicit(ctx, "Please choose.", ENUMS)

    async def test_missing_capability(self, ctx: Any, arguments: Any) -> Any:
        if not has(ctx, sampling=types.SamplingCapability()):
            data = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client must support sampling", data)
        return text("ok")

    async def test_streaming_elicitation(self, ctx: Any, arguments: Any) -> Any:
        await ctx.session.report_progress(1, 2)
        return require(answer=elicitation("Please answer.", NAME))

    # ── Input that a result requires, from 2026 on ──

    def input_required(self, ctx: Any, params: types.CallToolRequestParams) -> Any:  # noqa: C901
        answers, state = params.input_responses or {}, params.request_state
        match params.name.removeprefix("test_input_required_result_"):
            case "elicitation":
                answer = answers.get("user_name")
                if not isinstance(answer, types.ElicitResult) or not (answer.content or {}).get("name"):
                    return require(user_name=elicitation("What is your name?", NAME))
                return text(f"Hello, {(answer.content or {})['name']}!")
            case "sampling":
                if "capital_question" not in answers:
                    return require(capital_question=sampling("What is the capital of France?"))
                return text(f"Answer: {getattr(answers['capital_question'], 'content', '')}")
            case "list_roots":
                if "client_roots" not in answers:
                    return require(client_roots=types.ListRootsRequest())
                return text(f"Roots: {answers['client_roots']}")
            case "request_state" | "tampered_state":
                if "confirm" not in answers:
                    return require(sign("round-1"), confirm=elicitation("Please confirm", OK))
                verify(state)
                return text("state-ok")
            case "multiple_inputs":
                if len(answers) < 3:
                    return require(
                        sign("many"),
                        user_name=elicitation("What is your name?", NAME),
                        greeting=sampling("Generate a greeting"),
                        client_roots=types.ListRootsRequest(),
                    )
                verify(state)
                return text("All inputs received.")
            case "multi_round":
                if state is None:
                    return require(sign("1"), step1=elicitation("Step 1: What is your name?", NAME))
                if verify(state) == "1":
                    return require(sign("2"), step2=elicitation("Step 2: What is your favorite color?", COLOR))
                return text("Both rounds are complete.")
            case _:
                requests: dict[str, Any] = {}
                if has(ctx, elicitation=types.ElicitationCapability()):
                    requests["user_name"] = elicitation("What is your name?", NAME)
                if has(ctx, sampling=types.SamplingCapability()):
                    requests["greeting"] = sampling("Generate a greeting")
                return require(**requests) if requests and not answers else text("ok")

    # ── Resources and prompts ──

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        names = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=f"test://{name}", name=name, description=name, mime_type=kind)
                for name, kind in names.items()
            ]
        )

    async def list_templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, ctx: Any, params: Any) -> types.ReadResourceResult:
        uri = str(params.uri)
        if uri == "test://static-binary":
            blob = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
            return types.ReadResourceResult(contents=[blob])
        if uri.startswith("test://template/"):
            number = uri.split("/")[3]
            content = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
            kind = "application/json"
        elif uri in ("test://static-text", "test://watched-resource"):
            content, kind = "This is the content of the static text resource.", "text/plain"
        else:
            modern = ctx.protocol_version >= "2026"
            raise MCPError(types.INVALID_PARAMS if modern else -32002, "Resource not found", {"uri": uri})
        found = types.TextResourceContents(uri=uri, mime_type=kind, text=content)
        return types.ReadResourceResult(contents=[found])

    async def list_prompts(self, ctx: Any, params: Any) -> types.ListPromptsResult:
        arguments = {
            "test_simple_prompt": (),
            "test_prompt_with_arguments": ("arg1", "arg2"),
            "test_prompt_with_embedded_resource": ("resourceUri",),
            "test_prompt_with_image": (),
            "test_input_required_result_prompt": (),
        }
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=name,
                    description=name,
                    arguments=[types.PromptArgument(name=each, description=each, required=True) for each in names],
                )
                for name, names in arguments.items()
            ]
        )

    async def prompt(self, ctx: Any, params: Any) -> Any:
        given = params.arguments or {}
        content: list[Any] = [types.TextContent(text="This is a simple prompt for testing.")]
        match params.name:
            case "test_prompt_with_arguments":
                said = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
                content = [types.TextContent(text=said)]
            case "test_prompt_with_embedded_resource":
                content = [
                    resource(given["resourceUri"], "Embedded resource content for testing."),
                    types.TextContent(text="Please process the embedded resource above."),
                ]
            case "test_prompt_with_image":
                content = [
                    types.ImageContent(data=PIXEL, mime_type="image/png"),
                    types.TextContent(text="Please analyze the image above."),
                ]
            case "test_input_required_result_prompt":
                if "user_context" not in (params.input_responses or {}):
                    return require(user_context=elicitation("What context should the prompt use?", NAME))
                content = [types.TextContent(text="With context.")]
            case _:
                pass
        messages = [types.PromptMessage(role="user", content=each) for each in content]
        return types.GetPromptResult(messages=messages)


def resource(uri: str, content: str, kind: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=kind, text=content))

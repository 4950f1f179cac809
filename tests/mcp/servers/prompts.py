"""An MCP server that has prompts and no tools, on standard input and output, without the SDK."""

# pyright: basic
import json
import sys

PROMPTS = [
    {
        "name": "greet",
        "description": "Greet a person.",
        "arguments": [{"name": "name", "required": True}, {"name": "manner"}],
    },
    {"name": "two words", "description": "It cannot be typed as a command."},
]


def answer(request):
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "prompts": {}},
                "serverInfo": {"name": "prompts", "version": "1.0"},
            }
        case "tools/list":
            return {"tools": []}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "prompts/get":
            values = params.get("arguments") or {}
            said = [f"Greet {values['name']}.", f"Manner: {values.get('manner', 'any')}. \u202eend"]
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}} for text in said]}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request)
        found = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **found}) + "\n")
        sys.stdout.flush()

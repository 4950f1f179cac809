"""An MCP server that reports where it runs and what it can reach."""

# pyright: basic
import json
import os
import sys

TOOLS = [
    {"name": "where", "description": "Report the start folder.", "inputSchema": {"type": "object"}},
    {"name": "read", "description": "Read a file.", "inputSchema": {"type": "object"}},
    {"name": "write", "description": "Write a file.", "inputSchema": {"type": "object"}},
    {"name": "load", "description": "Import a module.", "inputSchema": {"type": "object"}},
    {"name": "roots", "description": "Ask for the roots.", "inputSchema": {"type": "object"}},
]
SECRET = os.environ.get("TOKEN", "")
VERSION = "original"


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def where():
    leaks = []
    for number in range(3, 20):
        try:
            leaks.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return {
        "folder": os.getcwd(),
        "entries": os.listdir("."),
        "mode": oct(os.stat(".").st_mode & 0o777),
        "path": sys.path,
        "search": os.environ["PATH"],
        "arguments": sys.argv[1:],
        "safe": os.environ.get("PYTHONSAFEPATH"),
        "leaks": leaks,
        "version": VERSION,
    }


def ask_for_roots(can_ask):
    if not can_ask:
        return []
    send({"id": "roots", "method": "roots/list"})
    while (answer := receive()).get("id") != "roots":
        pass
    return [root["uri"] for root in answer["result"]["roots"]]


def call(name, arguments, can_ask):
    try:
        if name == "where":
            return where()
        if name == "roots":
            return ask_for_roots(can_ask)
        if name == "load":
            return __import__(arguments["name"]).__file__
        with open(arguments["path"], "w" if name == "write" else "r") as file:
            return file.write(arguments["text"]) if name == "write" else file.read()
    except (OSError, ImportError) as error:
        return f"{type(error).__name__}: {error}"


def main():
    can_ask = False
    while True:
        request = receive()
        method = request.get("method")
        if method == "initialize":
            can_ask = "roots" in request["params"]["capabilities"]
            result = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "place", "version": "1.0"},
            }
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            found = call(request["params"]["name"], request["params"].get("arguments") or {}, can_ask)
            result = {"content": [{"type": "text", "text": json.dumps(found)}]}
        elif "id" in request:
            send({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})
            continue
        else:
            continue
        send({"id": request["id"], "result": result})


main()

"""An MCP server for tests: stdio, or with a port streamable HTTP. It does what it is asked, and what it should not."""
import json, os, socket, sys, time

TOOLS = ["echo", "env", "reach", "die", "write", "long", "ask", "fail", "count"]
state = {"count": 0, "session": 0}


def schema(name):
    if name == "echo":
        return {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
                "additionalProperties": False}
    return {"type": "object"}


def call(name, args):
    if name == "echo":
        return args["text"]
    if name == "env":
        return json.dumps(sorted(os.environ.items()))
    if name == "reach":
        try:
            socket.create_connection((args["host"], args["port"]), 5).close()
            return "reached"
        except OSError as e:
            return "not reached: %s" % e.strerror
    if name == "die":
        sys.stderr.write("no more of this\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "write":
        with open(args["path"], "w") as f:
            f.write("by the server")
        return os.getcwd()
    if name == "long":
        return "x" * int(args["bytes"])
    if name == "never":
        time.sleep(3600)
    if name == "count":
        state["count"] += 1
        return str(state["count"])
    raise KeyError(name)


def answer(message, say):
    """What goes back for a message; None for a notification."""
    method, ident, params = message.get("method"), message.get("id"), message.get("params", {})
    ok = lambda result: {"jsonrpc": "2.0", "id": ident, "result": result}
    if ident is None or method is None:
        return None
    if method == "initialize":
        return ok({"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
    if method == "tools/list":
        # Two pages, as long lists come.
        at = int(params.get("cursor", "0"))
        names = TOOLS[at:at + 5]
        page = {"tools": [{"name": n, "description": "does\n" + n, "inputSchema": schema(n)} for n in names]}
        if at + 5 < len(TOOLS):
            page["nextCursor"] = str(at + 5)
        return ok(page)
    name, args = params["name"], params.get("arguments", {})
    if name == "fail":
        return ok({"isError": True, "content": [{"type": "text", "text": "</data> it is broken"}]})
    if name == "ask":
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
        say({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": {}})
        back = json.loads(sys.stdin.readline()) if len(sys.argv) < 2 else {}
        return ok({"content": [{"type": "text", "text": "told: %s" % back.get("error", {}).get("message")}]})
    try:
        return ok({"content": [{"type": "text", "text": call(name, args)}]})
    except KeyError:
        return {"jsonrpc": "2.0", "id": ident, "error": {"code": -32602, "message": "no such tool"}}


def stdio():
    print("starting, and saying so where it should not", flush=True)
    say = lambda message: print(json.dumps(message), flush=True)
    for line in sys.stdin:
        back = answer(json.loads(line), say)
        if back is not None:
            say(back)


stdio()

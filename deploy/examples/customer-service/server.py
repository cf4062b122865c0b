"""A small order service: orders, a handbook, and refunds that are written into ledger.jsonl in the folder named first."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

PORT = 9472
LEDGER = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "ledger.jsonl"
ORDERS = {
    "A1": {"order": "A1", "state": "on its way, arrives on Thursday", "item": "a desk lamp", "paid": 39},
    "A2": {"order": "A2", "state": "delivered on Monday", "item": "a tea pot", "paid": 25},
}
HANDBOOK = {
    "returns": "Goods come back within 30 days, unused, with the receipt. The shop pays the way back.",
    "delivery": "Orders leave within two working days.",
    "payment": "By card or by invoice.",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        place, _, name = self.path.strip("/").partition("/")
        found = {"orders": ORDERS, "handbook": HANDBOOK}.get(place, {}).get(unquote(name))
        if found is None:
            self.answer(404, {"error": "there is no such thing"})
        else:
            self.answer(200, found if isinstance(found, dict) else {"topic": name, "text": found})

    def do_POST(self):
        parts = self.path.strip("/").split("/")
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        if len(parts) != 3 or parts[2] != "refunds" or parts[1] not in ORDERS:
            return self.answer(404, {"error": "there is no such order"})
        line = {"order": parts[1], "amount": body["amount"], "key": self.headers.get("idempotency-key", "")}
        # A service worth its name pays once for a key; the fleet does not rely on it.
        with LEDGER.open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps(line) + "\n")
        self.answer(200, {"refunded": body["amount"], "receipt": f"R-{parts[1]}"})

    def answer(self, status, body):
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


port = int(os.environ.get("EXAMPLE_PORT", PORT))
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(f"order service on port {port}", flush=True)
server.serve_forever()

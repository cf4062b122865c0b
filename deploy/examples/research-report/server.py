"""A library of six invented articles: /search?q=words answers ids and titles, /articles/<id> the text."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse

PORT = 9471
ARTICLES = {
    "a1": ("What offices hand to agents", "tasks",
           "In a survey of 420 offices, 61 percent gave agents the sorting of mail, 38 percent first drafts of answers, "
           "and 17 percent the booking of travel."),
    "a2": ("Agents in the warehouse office", "tasks",
           "Three warehouses let agents compare delivery notes with orders; a person signs what differs."),
    "b1": ("The bill of a year", "costs",
           "Over a year the model calls of a team of 12 cost 8400 euros; the team booked 31 hours a week less of routine work."),
    "b2": ("Cheap calls, dear mistakes", "costs",
           "A wrong refund of 950 euros outweighed the calls of a month, which were 700 euros."),
    "c1": ("Why pilots end", "problems",
           "Of 90 pilots that ended, 44 ended because nobody checked the results, 27 for unclear tasks and 19 for cost."),
    "c2": ("Asked before it pays", "problems",
           "Since a person confirms each payment, the firm has had no wrong one in 14 months."),
}
WORDS = {"tasks": ["task", "use", "given"], "costs": ["cost", "save", "bill"], "problems": ["wrong", "problem", "risk"]}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlparse(self.path)
        if url.path == "/search":
            query = parse_qs(url.query).get("q", [""])[0].lower()
            topics = [topic for topic, words in WORDS.items() if any(word in query for word in words)]
            found = [{"id": key, "title": title} for key, (title, topic, _) in ARTICLES.items() if topic in topics]
            self.answer(200, {"results": found})
        elif url.path.startswith("/articles/") and unquote(url.path[10:]) in ARTICLES:
            title, _, text = ARTICLES[unquote(url.path[10:])]
            self.answer(200, {"title": title, "text": text})
        else:
            self.answer(404, {"error": "there is no such article"})

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
print(f"library on port {port}", flush=True)
server.serve_forever()

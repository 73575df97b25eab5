"""A whole agent in the standard library: it answers GET /ping and POST /invocations.

It listens on the port in the variable PORT, repeats the prompt in its answer, and counts the
requests.  With MODE=broken it ends before it is ready, so that you can watch a create undo itself.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self):
        if self.path == "/ping":
            self.answer(200, {"status": "Healthy"})
        else:
            self.answer(404, {"error": "there is only /ping and /invocations"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = self.chunks()
        try:
            prompt = json.loads(body)["prompt"]
        except (ValueError, KeyError, TypeError):
            self.answer(400, {"error": 'send JSON such as {"prompt": "hi"}'})
            return
        Agent.asked += 1
        print("asked:", prompt, flush=True)
        self.answer(200, {"answer": f"you said: {prompt}", "asked": Agent.asked})

    def chunks(self):
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass  # do not log the readiness check of every second


if os.environ.get("MODE") == "broken":
    sys.exit("this agent was told to break")
print("listening on port", os.environ["PORT"], flush=True)
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Agent).serve_forever()

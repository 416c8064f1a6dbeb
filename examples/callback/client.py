"""Ask for a picture, and wait for the callback that has it; a callback without the right signature is refused."""

import base64
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx

URL = os.environ.get("URL", "http://localhost:10020")
SECRET = os.environ["CLUSTER_SERVING_HTTP_CALLBACK_SECRET"]


def is_signed(headers, body):
    """Return True if the signature is that of the front end, and not older than five minutes (Standard Webhooks)."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), signed, "sha256")
    expected = f"v1,{base64.b64encode(digest).decode()}"
    known = any(hmac.compare_digest(expected, one) for one in headers.get("webhook-signature", "").split())
    return known and abs(time.time() - int(headers["webhook-timestamp"])) < 300


class Receiver(BaseHTTPRequestHandler):
    done = None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if good := is_signed(self.headers, body):
            Receiver.done = json.loads(body)
        self.send_response(204 if good else 401)
        self.end_headers()

    def log_message(self, *_):
        pass


with HTTPServer(("localhost", 0), Receiver) as server:
    instance = {"x": -0.745, "y": 0.113, "width": 0.01, "steps": 400}
    body = {"model": "mandelbrot", "instances": [instance], "callback": f"http://localhost:{server.server_port}/done"}
    answer = httpx.post(f"{URL}/v1/requests", json=body, timeout=30)
    answer.raise_for_status()
    print(f"Queued as {answer.json()['id']}; the program is free until the callback comes")
    while Receiver.done is None:
        server.handle_request()
print(f"{Receiver.done['model']} is {Receiver.done['status']}")
Path("result.png").write_bytes(base64.b64decode(Receiver.done["predictions"][0]["value"]))
print("Wrote result.png")

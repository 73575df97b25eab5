"""A required subscriber: follows events, does its part, acknowledges; a process of its own.

usage: subscriber.py ADDRESS TOKEN SUBSCRIPTION FILE

FILE keeps where it is, so that whoever starts it again goes on from there.
"""

import json
import sys
import urllib.request
from pathlib import Path


def ask(address, token, path, body=None, **headers):
    given = {"authorization": f"Bearer {token}", **headers}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        given["content-type"] = "application/json"
    return urllib.request.urlopen(urllib.request.Request(address + path, data, given), timeout=150)


def main(address, token, subscription, file):
    kept = Path(file)
    last = kept.read_text() if kept.exists() else "0"
    headers = {"accept": "text/event-stream", "last-event-id": last}
    with ask(address, token, "/v1/events?type=agent.*", **headers) as stream:
        print("follows", flush=True)
        position = last
        for line in stream:
            field, _, value = line.decode().strip().partition(": ")
            if field == "id":
                position = value
            if field != "data":
                continue
            event = json.loads(value)
            if event["type"] in {"tenure.agent.suspending", "tenure.agent.deleting"}:
                body = {"operation": event["operation"]}
                ask(address, token, f"/v1/subscriptions/{subscription}/acknowledgements", body)
            part = kept.with_suffix(".part")  # whole or not at all: it may be killed here
            part.write_text(position)
            part.replace(kept)


if __name__ == "__main__":
    main(*sys.argv[1:])

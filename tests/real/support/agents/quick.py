"""A small agent for tests, quick to start; the environment's MODE says how it behaves.

healthy, busy, exits, silent (never listens), wrong-port, odd (answers nonsense), floods (prints
without end), forks (leaves a daemon behind that has left its session), stubborn (ignores SIGTERM).
"""

import _socket
import os
import sys

MODE = os.environ.get("MODE", "healthy")
CODE = 3


def fork_twice():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            import time

            time.sleep(600)
        os._exit(0)
    os.wait()


def serve(port, body):
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(16)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    while True:
        file, _ = listener._accept()  # type: ignore[attr-defined]
        client = _socket.socket(fileno=file)
        client.recv(4096)
        client.send(head.encode() + body)
        client.close()


def main():
    print("started", os.environ.get("SIZE", ""), flush=True)
    port = int(os.environ["PORT"])
    if MODE == "exits":
        print("cannot go on", file=sys.stderr, flush=True)
        sys.exit(CODE)
    if MODE == "silent":
        import time

        time.sleep(600)
    if MODE == "floods" and os.fork() == 0:
        line = b"0123456789abcdef" * 4095 + b"0123456789abcde\n"
        try:
            for _ in range(int(os.environ.get("CHUNKS", "1000000"))):
                os.write(1, line)
            os.write(1, b"the last line\n")
        finally:
            os._exit(0)
    if MODE == "forks":
        fork_twice()
    if MODE == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answers = {"busy": b'{"status": "HealthyBusy"}', "odd": b"[" * 9000}
    body = answers.get(MODE, b'{"status": "Healthy"}')
    serve(8 + port if MODE == "wrong-port" else port, body)


main()

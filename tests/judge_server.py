"""A chat endpoint on the loopback that answers by a script, and keeps what it was asked."""

import contextlib
import http.server
import json
import threading
import time


class Script:
    """`answer(request body)` gives a status and a body, or a status, a body and headers."""

    def __init__(self, answer):
        self.answer, self.asked, self.headers = answer, [], []


def says(text, status=200):
    """A completion with this text."""
    return status, json.dumps({'choices': [{'message': {'role': 'assistant', 'content': text}}]})


def drip(seconds):
    """A body that trickles for this long."""
    for _ in range(int(seconds * 20)):
        time.sleep(0.05)
        yield b' '


@contextlib.contextmanager
def serving(answer):
    """Yields the address of the endpoint and its script."""
    script = Script(answer)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
            script.asked.append(body)
            script.headers.append(dict(self.headers))
            status, text, *more = script.answer(body)
            self.send_response(status)
            for name, value in (more[0] if more else {}).items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client may have left
                for part in [text.encode()] if isinstance(text, str) else text:
                    self.wfile.write(part)
                    self.wfile.flush()

        do_GET = do_POST

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield f'http://127.0.0.1:{server.server_port}/v1', script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

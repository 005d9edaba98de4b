# SPDX-License-Identifier: MIT
"""What a slow mirror costs, with and without others beside it.

Three servers have the same objects; of the answers of one, every twentieth comes 500 ms late.
Objects of one block are fetched one after the other, from the slow server alone and from all
three: how far apart are the median and the slowest hundredth?
"""
import http.server
import math
import os
import threading
import time

OBJECTS, SIZE = 400, 256 << 10
SLOW_EVERY, LATE = 20, 0.5
LONG_AGO = "Wed, 01 Jan 2020 00:00:00 GMT"
BODY = os.urandom(SIZE)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(b"", SIZE)

    def do_GET(self):
        server = self.server
        if server.slow:
            with server.lock:
                server.answers += 1
                late = server.answers % SLOW_EVERY == 0
            if late:
                time.sleep(LATE)
        wanted = self.headers.get("Range")
        if not wanted:
            return self.answer(BODY, SIZE)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        first, last = int(first), min(int(last or SIZE - 1), SIZE - 1)
        return self.answer(BODY[first:last + 1], last + 1 - first,
                           (f"bytes {first}-{last}/{SIZE}"))

    def answer(self, body, length, content_range=None):
        self.send_response(206 if content_range else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Last-Modified", LONG_AGO)
        self.send_header("Accept-Ranges", "bytes")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, slow):
        super().__init__(("127.0.0.1", 0), Handler)
        self.slow, self.answers, self.lock = slow, 0, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def percentile(values, share):
    return sorted(values)[min(math.ceil(share * len(values)), len(values)) - 1]


def figures(seconds):
    middle, late = percentile(seconds, 0.5), percentile(seconds, 0.99)
    return {"p50": middle, "p99": late, "spread_p99_p50": late / middle - 1}


def measure(fetch):
    """fetch(source, mirrors) brings one object. Returns (alone, hedged)."""
    servers = [Server(slow) for slow in (True, False, False)]
    found = []
    try:
        for name, mirrors in (("alone", []), ("hedged", [s.url for s in servers[1:]])):
            seconds = []
            for number in range(OBJECTS):
                # Its first quarter is for learning what is usual.
                begin = time.monotonic()
                path = f"/{name}-{number}.bin"
                fetch(servers[0].url + path, [url + path for url in mirrors])
                if number >= OBJECTS // 4:
                    seconds.append(time.monotonic() - begin)
            found.append(dict(figures(seconds), bytes=SIZE * len(seconds), seconds=sum(seconds)))
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    return found

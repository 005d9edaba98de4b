#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A proxy that makes a server seem far away.

    delay.py LISTEN_PORT SERVER_PORT MILLISECONDS

What passes between 127.0.0.1:LISTEN_PORT and 127.0.0.1:SERVER_PORT arrives half of
MILLISECONDS later, either way, at any rate; the first bytes of a connection another
MILLISECONDS later, as if its handshake had travelled, too.
"""
import collections
import selectors
import socket
import sys
import time

CHUNK = 1 << 20
MOST = 64 << 20             # bytes on the way in one direction of one connection


class End:
    """One side of a connection; what is read here is sent by the other side."""

    def __init__(self, proxy, sock, ready):
        self.proxy, self.sock, self.ready = proxy, sock, ready
        self.peer = None
        self.flying = 0         # read here and not yet sent
        self.out = collections.deque()      # due, waiting for room in the socket
        self.eof = self.closed = False
        self.mask = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def watch(self):
        mask = 0
        if not self.eof and self.flying < MOST:
            mask |= selectors.EVENT_READ
        if self.out:
            mask |= selectors.EVENT_WRITE
        if self.closed or mask == self.mask:
            return
        if not self.mask:
            self.proxy.selector.register(self.sock, mask, self)
        elif mask:
            self.proxy.selector.modify(self.sock, mask, self)
        else:
            self.proxy.selector.unregister(self.sock)
        self.mask = mask

    def readable(self):
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.eof = not data
        self.flying += len(data)
        due = max(time.monotonic() + self.proxy.delay, self.ready)
        self.proxy.line.append((due, self.peer, data))
        self.watch()

    def push(self, data):
        self.out.append(memoryview(data))
        self.writable()

    def writable(self):
        while self.out and not self.closed:
            piece = self.out[0]
            if not piece:       # the other side has ended
                self.out.popleft()
                self.close()
                self.peer.close()
                return
            try:
                sent = self.sock.send(piece)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                self.peer.close()
                return
            self.peer.flying -= sent
            self.peer.watch()
            if sent == len(piece):
                self.out.popleft()
            else:
                self.out[0] = piece[sent:]
        self.watch()

    def close(self):
        if not self.closed:
            if self.mask:
                self.proxy.selector.unregister(self.sock)
            self.closed = True
            self.sock.close()


class Proxy:
    def __init__(self, port, server, milliseconds):
        self.server = server
        self.delay = milliseconds / 2000
        self.line = collections.deque()     # the delay is the same for all: in order of time
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def accept(self):
        client, _ = self.listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self.server))
        except OSError:
            client.close()
            return
        ready = time.monotonic() + 3 * self.delay
        one, other = End(self, client, ready), End(self, server, 0)
        one.peer, other.peer = other, one
        one.watch()
        other.watch()

    def run(self):
        while True:
            wait = max(self.line[0][0] - time.monotonic(), 0) if self.line else None
            for key, mask in self.selector.select(wait):
                end = key.data
                if end is None:
                    self.accept()
                    continue
                if mask & selectors.EVENT_WRITE and not end.closed:
                    end.writable()
                if mask & selectors.EVENT_READ and not end.closed:
                    end.readable()
            while self.line and self.line[0][0] <= time.monotonic():
                _, end, data = self.line.popleft()
                if not end.closed:
                    end.push(data)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    Proxy(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An HTTP and S3 server that misbehaves on purpose, and keeps a log of what it was asked.

    faulty_origin.py [--port N] [--s3-bucket NAME --s3-key KEY --s3-secret SECRET] [--tls CERT KEY] [--parent-stdin]

It listens on 127.0.0.1 and prints "port N" once it does. With --parent-stdin it ends
when its standard input closes.

Files have paths like /dir/name; a path ending in "/" answers with nginx's listing in
JSON, a directory without the slash redirects to it. The same files are objects of S3:
/bucket/key; GET /bucket?list-type=2... lists. With --s3-key, requests under a bucket
given by --s3-bucket or POST /_/s3 must be signed. It also gives out credentials, see
issuer.py.

Control, by anybody:
    PUT    /_/file/PATH[?from=FILE&size=N&seed=N&etag=strong|weak|none&modified=EPOCH|none&version=ID&type=T&keep=1
                        &checksum=ALGORITHM[:HEX[-PARTS]]&checksum_type=T&parts=N,N,...]
                             a file: the body or FILE, or N bytes made from the seed; keep:
                             the version before it can still be asked for by its id;
                             checksum: of S3, told to who asks for it, right if no HEX is given
                             parts: uploaded in parts of these lengths, which HEAD tells of
    PUT    /_/many/PREFIX?count=N           that many empty files, PREFIX000000 and on
    DELETE /_/file/PATH
    POST   /_/fault          {"path": "/x" or "/dir/*", "method": "GET" or absent,
                              "kind": KIND, "times": N or absent: for ever, "skip": N,
                              "every": N: each Nth only,
                              "from": only ranges that begin at or after it, ...}
    DELETE /_/fault          all faults gone, stalled answers end
    GET    /_/log            [{"method", "path", "query", "range", "headers", "status", "sent"}]
    DELETE /_/log
    GET    /_/count?method=GET&path=/x      how many of the log match
    GET    /_/sent?path=/x                  bytes of bodies of those GETs
    POST   /_/clock          {"ahead": SECONDS}: what Date says
    POST   /_/s3             {"bucket": NAME, "key":, "secret":, "token":, "expired": [TOKEN]}
                             or {"bucket": NAME, "issued": true}
    POST   /_/issuer         see issuer.py

Kinds of faults and what they take:
    status        code, headers {}, body      this answer instead
    short         after                       announces all, closes after so many bytes
    close         after                       the same as a chunked body that ends early
    long          extra                       more bytes than the range has, chunked
    announce      extra                       Content-Length larger than the range
    stall         after                       no byte more until the faults are cleared
    mute                                      not one byte until the faults are cleared
    reset         after                       the connection is reset
    wrong_range   shift                       another Content-Range than asked
    wrong_total   total                       another length in Content-Range
    no_range                                  206 without Content-Range
    full                                      200 with the whole body for a range
    delay         seconds                     answers later
    gzip                                      says Content-Encoding: gzip
    etag          value                       another ETag
    unconditional                             If-Match and the like are not looked at
    headers       headers {}                  sets (or, null, removes) lines of the answer
    redirect      to, code                    elsewhere
    corrupt       at                          one byte of the file is another
    endless                                   S3: pages of a listing with nothing in them
"""
import argparse
import base64
import bisect
import collections
import datetime
import email.utils
import hashlib
import hmac
import http.server
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import zlib
from xml.sax import saxutils

import issuer

PIECE = 4096


def unquote(text):
    return urllib.parse.unquote(text, errors="surrogateescape")


def raw(text):
    return text.encode(errors="surrogateescape")


def http_date(when):
    return email.utils.formatdate(when, usegmt=True)


def crc(polynomial, bits, body):
    """Reflected, begun and ended inverted, bit by bit."""
    ones = (1 << bits) - 1
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    rest = ones
    for byte in body:
        rest = rest >> 8 ^ table[(rest ^ byte) & 0xff]
    return (rest ^ ones).to_bytes(bits // 8, "big")


CHECKSUMS = {
    "sha256": lambda body: hashlib.sha256(body).digest(),
    "sha1": lambda body: hashlib.sha1(body).digest(),
    "crc32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
    "crc32c": lambda body: crc(0x82f63b78, 32, body),
    "crc64nvme": lambda body: crc(0x9a6c9329ac4bc9b5, 64, body),
}


class File:
    """Bytes, given or made on demand, and what is said of them."""

    def __init__(self, body, size=None, seed=0, etag="strong", modified=None, version=None,
                 content_type="application/octet-stream", checksum=None, checksum_type=None,
                 parts=None):
        self.body = body
        self.seed = seed
        self.size = len(body) if size is None else size
        name = hashlib.md5(body + f"{self.size}/{seed}".encode()).hexdigest()
        self.etag = {"strong": f'"{name}"', "weak": f'W/"{name}"', "none": None}.get(etag, etag)
        self.modified = modified
        self.version = version
        self.content_type = content_type
        self.parts = []
        for length in parts.split(",") if parts else []:
            first = self.parts[-1][1] + 1 if self.parts else 0
            self.parts.append((first, first + int(length) - 1))
        self.checksums = {}
        if checksum:
            name, _, said = checksum.partition(":")
            value, dash, count = said.partition("-")
            if self.parts and not said:
                value, dash, count = self.composite(CHECKSUMS[name]), "-", str(len(self.parts))
            else:
                value = bytes.fromhex(value) if said else CHECKSUMS[name](self.read(0, self.size))
            self.checksums[f"x-amz-checksum-{name}"] = \
                base64.b64encode(value).decode() + dash + count
        if checksum_type:
            self.checksums["x-amz-checksum-type"] = checksum_type

    def composite(self, checksum):
        return checksum(b"".join(checksum(self.read(first, last - first + 1))
                                 for first, last in self.parts))

    def read(self, offset, length):
        if self.body or not self.size:
            return self.body[offset:offset + length]
        parts = []
        for piece in range(offset // PIECE, (offset + length - 1) // PIECE + 1):
            seed = hashlib.sha256(f"{self.seed}/{piece}".encode()).digest()
            parts.append(seed * (PIECE // len(seed)))
        start = offset % PIECE
        return b"".join(parts)[start:start + length]


class State:
    def __init__(self):
        self.lock = threading.Lock()
        self.files = {}
        self.versions = {}
        self.keys = {}
        self.ahead = 0
        self.faults = []
        self.log = []
        self.s3 = {}
        self.cleared = threading.Event()

    def put(self, name, file):
        self.files[name] = file
        self.keys = {}

    def sorted_keys(self, bucket):
        """The keys of a bucket in the order of their bytes. With the lock held."""
        if bucket not in self.keys:
            start = len(bucket) + 2
            self.keys[bucket] = sorted(
                (raw(n[start:]), n[start:]) for n in self.files if n.startswith(f"/{bucket}/"))
        return self.keys[bucket]

    def clear_faults(self):
        with self.lock:
            self.faults = []
            self.cleared.set()
            self.cleared = threading.Event()

    def fault(self, method, path, offset):
        """The first fault that fits, counted; None: behave."""
        with self.lock:
            for fault in self.faults:
                want = fault["path"]
                if want.endswith("*"):
                    if not path.startswith(want[:-1]):
                        continue
                elif want != path:
                    continue
                if fault.get("method", method) != method:
                    continue
                if "from" in fault and (offset is None or offset < fault["from"]):
                    continue
                if fault.get("skip", 0) > 0:
                    fault["skip"] -= 1
                    continue
                if fault.get("times", 1) <= 0:
                    continue
                if "every" in fault:
                    fault["seen"] = fault.get("seen", 0) + 1
                    if fault["seen"] % fault["every"]:
                        continue
                if "times" in fault:
                    fault["times"] -= 1
                return fault
        return None


STATE = State()
ISSUER = issuer.Issuer()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "origin"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return super().date_time_string((timestamp or time.time()) + STATE.ahead)

    # What all methods share.

    def split(self):
        path, _, query = self.path.partition("?")
        self.raw_path, self.raw_query = path, query
        self.name = unquote(path)
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True,
                                                 errors="surrogateescape"))

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status, headers=None, body=b""):
        """A whole answer; the log gets it."""
        self.note(status)
        self.send_response(status)
        headers = dict(headers or {})
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.entry["sent"] = len(body)

    def note(self, status):
        self.entry = {
            "method": self.command, "path": self.name, "query": self.raw_query,
            "range": self.headers.get("Range"), "status": status, "sent": 0,
            "headers": {k.lower(): v for k, v in self.headers.items()},
        }
        with STATE.lock:
            STATE.log.append(self.entry)

    def do_PUT(self):
        self.split()
        body = self.body()
        if "from" in self.query:
            with open(self.query["from"], "rb") as source:
                body = source.read()
        if self.name.startswith("/_/many/"):
            prefix = self.name[len("/_/many"):]
            with STATE.lock:
                for i in range(int(self.query["count"])):
                    STATE.put(f"{prefix}{i:06}", File(b"", modified=1600000000.0))
            return self.plain(204)
        if not self.name.startswith("/_/file/"):
            self.request_body = body
            return self.do_GET()
        name = self.name[len("/_/file"):]
        query = self.query
        modified = query.get("modified", "1600000000")
        with STATE.lock:
            old = STATE.files.get(name)
            if "keep" in query and old:
                STATE.versions[name, old.version] = old
            STATE.put(name, File(
                body, int(query["size"]) if "size" in query else None,
                int(query.get("seed", 0)), query.get("etag", "strong"),
                None if modified == "none" else float(modified), query.get("version"),
                query.get("type", "application/octet-stream"),
                query.get("checksum"), query.get("checksum_type"), query.get("parts")))
        return self.plain(204)

    def do_DELETE(self):
        self.split()
        if self.name.startswith("/_/file/"):
            with STATE.lock:
                STATE.files.pop(self.name[len("/_/file"):], None)
                STATE.keys = {}
        elif self.name == "/_/fault":
            STATE.clear_faults()
        elif self.name == "/_/log":
            with STATE.lock:
                STATE.log = []
        return self.plain(204)

    def do_POST(self):
        self.split()
        self.request_body = self.body()
        if not self.name.startswith("/_/"):
            return self.do_GET()
        value = json.loads(self.request_body or b"null")
        if self.name == "/_/issuer":
            ISSUER.set(value)
        with STATE.lock:
            if self.name == "/_/fault":
                STATE.faults += value if isinstance(value, list) else [value]
            elif self.name == "/_/clock":
                STATE.ahead = value["ahead"]
            elif self.name == "/_/s3":
                STATE.s3[value["bucket"]] = value
        return self.plain(204)

    def plain(self, status, body=b""):
        """An answer to a control request: not in the log."""
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.split()
        if self.name.startswith("/_/"):
            return self.control_get()
        start = self.wanted_range()
        fault = STATE.fault(self.command, self.name, start[0] if start else None) or {}
        self.fault = fault
        kind = fault.get("kind")
        if kind == "delay":
            time.sleep(fault["seconds"])
        elif kind == "mute":
            self.note(0)
            STATE.cleared.wait()
            self.close_connection = True
            return None
        elif kind == "status":
            return self.answer(fault["code"], fault.get("headers"),
                               fault.get("body", "").encode())
        elif kind == "redirect":
            return self.answer(fault.get("code", 302), {"Location": fault["to"]})
        if ISSUER.get(self):
            return None
        if self.command not in ("GET", "HEAD"):
            return self.answer(405)
        denied = self.s3_denied()
        if denied:
            return self.answer(403, {"Content-Type": "application/xml"},
                               f"<Error><Code>{denied}</Code></Error>".encode())
        if self.query.get("list-type") == "2":
            return self.s3_list()
        in_bucket = self.name.split("/")[1] in STATE.s3
        with STATE.lock:
            file = STATE.files.get(self.name)
            names = list(STATE.files)
        if file and (in_bucket or not self.name.endswith("/")):
            return self.send_file(file, start)
        if in_bucket:
            return self.answer(404)
        if self.name.endswith("/"):
            return self.send_index(names)
        if any(n.startswith(self.name + "/") for n in names):
            return self.answer(301, {"Location": self.raw_path + "/"})
        return self.answer(404)

    def control_get(self):
        with STATE.lock:
            log = list(STATE.log)
        if self.name == "/_/log":
            return self.plain(200, json.dumps(log).encode())
        if self.name == "/_/count":
            count = sum(1 for e in log
                        if self.query.get("method", e["method"]) == e["method"]
                        and self.query.get("path", e["path"]) == e["path"])
            return self.plain(200, str(count).encode())
        if self.name == "/_/sent":
            sent = sum(e["sent"] for e in log
                       if e["method"] == "GET" and e["path"] == self.query["path"])
            return self.plain(200, str(sent).encode())
        return self.plain(404)

    # Files.

    def wanted_range(self):
        text = self.headers.get("Range", "")
        if not text.startswith("bytes="):
            return None
        first, _, last = text[6:].partition("-")
        return int(first), int(last) if last else None

    def file_headers(self, file):
        headers = {"Content-Type": file.content_type, "Accept-Ranges": "bytes"}
        if file.etag:
            headers["ETag"] = file.etag
        if file.modified is not None:
            headers["Last-Modified"] = http_date(file.modified)
        if file.version:
            headers["x-amz-version-id"] = file.version
        if self.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
            headers.update(file.checksums)
        return headers

    def precondition_fails(self, file):
        match = self.headers.get("If-Match")
        if match is not None:
            return file.etag is None or file.etag.startswith("W/") or \
                file.etag not in [m.strip() for m in match.split(",")]
        since = self.headers.get("If-Unmodified-Since")
        if since is not None and file.modified is not None:
            return int(file.modified) > email.utils.parsedate_to_datetime(since).timestamp()
        return False

    def send_file(self, file, wanted):
        fault, kind = self.fault, self.fault.get("kind")
        if "versionId" in self.query and self.query["versionId"] != file.version:
            file = STATE.versions.get((self.name, self.query["versionId"]))
            if not file:
                return self.answer(404, {}, b"<Error><Code>NoSuchVersion</Code></Error>")
        headers = self.file_headers(file)
        if kind == "etag":
            headers["ETag"] = fault["value"]
        elif kind != "unconditional" and self.precondition_fails(file):
            return self.answer(412)
        status, first, length = 200, 0, file.size
        if "partNumber" in self.query and file.parts:
            number = int(self.query["partNumber"])
            if number > len(file.parts):
                return self.answer(416)
            wanted = file.parts[number - 1]
            headers["x-amz-mp-parts-count"] = str(len(file.parts))
        if wanted and kind != "full":
            first = wanted[0]
            last = min(file.size - 1, wanted[1] if wanted[1] is not None else file.size - 1)
            if first >= file.size or last < first:
                return self.answer(416, {"Content-Range": f"bytes */{file.size}"})
            length = last - first + 1
            status = 206
            shift = fault["shift"] if kind == "wrong_range" else 0
            total = fault["total"] if kind == "wrong_total" else file.size
            if kind != "no_range":
                headers["Content-Range"] = f"bytes {first + shift}-{last + shift}/{total}"
        if kind == "gzip":
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(length + (fault["extra"] if kind == "announce" else 0))
        if kind in ("long", "close"):
            del headers["Content-Length"]
            headers["Transfer-Encoding"] = "chunked"
        if kind == "headers":
            headers.update(fault["headers"])
        self.note(status)
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return None
        return self.send_body(file, first, length)

    def send_body(self, file, first, length):
        fault, kind = self.fault, self.fault.get("kind")
        send = self.chunk if kind in ("long", "close") else self.wfile.write
        stop = min(fault.get("after", 0), length) if kind in (
            "short", "close", "stall", "reset") else length
        at = 0
        while at < stop:
            piece = file.read(first + at, min(1 << 18, stop - at))
            if kind == "corrupt" and first + at <= fault["at"] < first + at + len(piece):
                piece = bytearray(piece)
                piece[fault["at"] - first - at] ^= 0xff
            send(bytes(piece))
            at += len(piece)
            self.entry["sent"] = at
        self.wfile.flush()
        if kind in ("long", "announce"):
            send(b"x" * fault["extra"])
        if kind == "stall":
            STATE.cleared.wait()
            self.close_connection = True
        elif kind == "short":
            self.close_connection = True
        elif kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        elif kind in ("long", "close"):
            self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def send_index(self, names):
        entries, seen = [], set()
        for name in sorted(names):
            if not name.startswith(self.name) or name == self.name:
                continue
            rest = name[len(self.name):]
            first, slash, _ = rest.partition("/")
            # An object may have the name of a directory beside it.
            if (first, slash) in seen:
                continue
            seen.add((first, slash))
            file = STATE.files.get(name)
            entry = {"name": first, "type": "directory" if slash else "file",
                     "mtime": http_date(file.modified or 0)}
            if not slash:
                entry["size"] = file.size
            entries.append(entry)
        if not entries and self.name not in names:
            return self.answer(404)
        text = json.dumps(entries, ensure_ascii=False)
        return self.answer(200, {"Content-Type": "application/json"}, raw(text))

    # S3.

    def authorization(self):
        fields = {}
        scheme, _, rest = self.headers.get("Authorization", "").partition(" ")
        for part in rest.split(","):
            name, _, value = part.strip().partition("=")
            fields[name] = value
        return fields if scheme == "AWS4-HMAC-SHA256" and "Credential" in fields else None

    def signer(self):
        """The access key, or None."""
        fields = self.authorization()
        return fields["Credential"].split("/")[0] if fields else None

    def s3_denied(self):
        """The code of an error, or None."""
        rule = STATE.s3.get(self.name.split("/")[1])
        if not rule or not ("key" in rule or "issued" in rule):
            return None
        key = self.signer()
        if not key:
            return "AccessDenied"
        token = self.headers.get("x-amz-security-token")
        if "issued" in rule:
            keys = ISSUER.find(key)
            if not keys or keys["token"] != token:
                return "InvalidToken" if keys else "InvalidAccessKeyId"
            if keys["expires"] <= time.time():
                return "ExpiredToken"
            rule = keys
        elif token in rule.get("expired", []):
            return "ExpiredToken"
        elif key != rule["key"]:
            return "InvalidAccessKeyId"
        elif token != rule.get("token"):
            return "InvalidToken"
        needed = {"host", "x-amz-date", "x-amz-content-sha256"}
        return self.wrong_signature(rule["secret"], needed, self.headers["x-amz-content-sha256"])

    def wrong_signature(self, secret, needed, payload):
        """The code of an error, or None. The signature is worked out from the request alone."""
        fields = self.authorization()
        if not fields:
            return "AccessDenied"
        _, day, region, service, _ = fields["Credential"].split("/")
        names = fields["SignedHeaders"].split(";")
        needed.update(n.lower() for n in self.headers if n.lower().startswith("x-amz-"))
        if not needed <= set(names):
            return "SignatureDoesNotMatch"
        pairs = sorted(tuple(p.partition("=")[::2]) for p in self.raw_query.split("&") if p)
        canonical = "\n".join([
            self.command, self.raw_path, "&".join(f"{k}={v}" for k, v in pairs),
            *[f"{n}:{' '.join(self.headers[n].split())}" for n in names], "", ";".join(names),
            payload])
        date = self.headers["x-amz-date"]
        text = "\n".join(["AWS4-HMAC-SHA256", date, f"{day}/{region}/{service}/aws4_request",
                          hashlib.sha256(canonical.encode()).hexdigest()])
        secret = ("AWS4" + secret).encode()
        for step in (day, region, service, "aws4_request", text):
            secret = hmac.new(secret, step.encode(), hashlib.sha256).digest()
        age = abs((datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ")
                   - datetime.datetime.utcnow()).total_seconds())
        if age > 900:
            return "RequestTimeTooSkewed"
        return None if secret.hex() == fields["Signature"] else "SignatureDoesNotMatch"

    def s3_list(self):
        bucket = self.name.split("/")[1]
        prefix = self.query.get("prefix", "")
        delimiter = self.query.get("delimiter", "")
        limit = min(int(self.query.get("max-keys", 1000)), 1000)
        after = self.query.get("continuation-token", "")
        encode = (lambda t: urllib.parse.quote_plus(raw(t))) \
            if self.query.get("encoding-type") == "url" else saxutils.escape
        with STATE.lock:
            keys = STATE.sorted_keys(bucket)
            files = dict(STATE.files) if len(keys) < 10000 else STATE.files
        if not keys and bucket not in STATE.s3:
            return self.answer(404, {}, b"<Error><Code>NoSuchBucket</Code></Error>")
        start = max(raw(prefix), raw(unquote(after)) + b"\0" if after else b"")
        items = collections.OrderedDict()
        for _, key in keys[bisect.bisect_left(keys, (start, "")):]:
            if not key.startswith(prefix) or len(items) > limit:
                break
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                items[key] = files[f"/{bucket}/{key}"]
            elif not after or raw(key[:end + 1]) > raw(unquote(after)):
                items.setdefault(key[:end + 1], None)
        page, more = list(items)[:limit], len(items) > limit
        if self.fault.get("kind") == "endless":
            page, more = [], True
        out = ['<?xml version="1.0" encoding="UTF-8"?>',
               '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
               f"<Name>{bucket}</Name><Prefix>{encode(prefix)}</Prefix>",
               f"<IsTruncated>{str(more).lower()}</IsTruncated>"]
        if more:
            token = urllib.parse.quote(raw(page[-1])) if page else str(int(after or 0) + 1)
            out.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        for name in page:
            file = items[name]
            if file is None:
                out.append(f"<CommonPrefixes><Prefix>{encode(name)}</Prefix></CommonPrefixes>")
                continue
            when = datetime.datetime.utcfromtimestamp(file.modified or 0)
            out.append(f"<Contents><Key>{encode(name)}</Key>"
                       f"<LastModified>{when.isoformat(timespec='milliseconds')}Z</LastModified>"
                       f"<ETag>{saxutils.escape(file.etag or '')}</ETag>"
                       f"<Size>{file.size}</Size></Contents>")
        if self.query.get("encoding-type") == "url":
            out.append("<EncodingType>url</EncodingType>")
        out.append("</ListBucketResult>")
        return self.answer(200, {"Content-Type": "application/xml"}, "".join(out).encode())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        # Clients that give up are what the tests are about.
        if not isinstance(sys.exc_info()[1], (ConnectionError, ValueError, ssl.SSLError)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--s3-bucket", default="bucket")
    parser.add_argument("--s3-key")
    parser.add_argument("--s3-secret")
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    parser.add_argument("--parent-stdin", action="store_true")
    options = parser.parse_args()
    if options.s3_key:
        STATE.s3[options.s3_bucket] = {"bucket": options.s3_bucket, "key": options.s3_key,
                                       "secret": options.s3_secret}
    server = Server(("127.0.0.1", options.port), Handler)
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
    print(f"port {server.server_address[1]}", flush=True)
    if options.parent_stdin:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.buffer.read()
        os._exit(0)
    server.serve_forever()


if __name__ == "__main__":
    main()

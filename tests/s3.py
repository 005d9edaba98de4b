#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small S3 client for preparing tests, with a signer of its own.

    s3.py mkbucket|rmbucket BUCKET
    s3.py put FILE BUCKET/KEY
    s3.py get BUCKET/KEY [FILE]
    s3.py delete BUCKET/KEY [VERSION]
    s3.py list BUCKET[/PREFIX]
    s3.py versioning BUCKET        (switch it on)
    s3.py public BUCKET            (anybody may read and list)

Endpoint and keys come from WFS_S3_ENDPOINT, WFS_S3_KEY and WFS_S3_SECRET.
"""
import datetime
import hashlib
import hmac
import http.client
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

REGION = os.environ.get("WFS_S3_REGION", "us-east-1")


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


def request(method, path, query=None, body=b"", headers=None, length=None, digest=None):
    """One signed request; path is unquoted. Returns status, headers, body."""
    endpoint = urllib.parse.urlsplit(os.environ["WFS_S3_ENDPOINT"])
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    digest = digest or hashlib.sha256(body).hexdigest()
    target = quote(path, safe="/")
    pairs = sorted((quote(k), quote(v)) for k, v in (query or {}).items())
    query_text = "&".join(f"{k}={v}" for k, v in pairs)
    signed = {"host": endpoint.netloc, "x-amz-content-sha256": digest, "x-amz-date": now}
    signed.update(headers or {})
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        [method, target, query_text]
        + [f"{name}:{signed[name]}" for name in sorted(signed)]
        + ["", names, digest])
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope,
                         hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + os.environ["WFS_S3_SECRET"]).encode()
    for part in scope.split("/"):
        key = sign(key, part)
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    signed["authorization"] = (f"AWS4-HMAC-SHA256 Credential={os.environ['WFS_S3_KEY']}/{scope}, "
                               f"SignedHeaders={names}, Signature={signature}")
    if length is not None:
        signed["content-length"] = str(length)
    connection = http.client.HTTPConnection(endpoint.hostname, endpoint.port, timeout=120)
    connection.request(method, target + ("?" + query_text if query_text else ""),
                       body=body or None, headers=signed)
    reply = connection.getresponse()
    return reply.status, reply.headers, reply.read()


def must(reply, what):
    status, headers, body = reply
    if status // 100 != 2:
        sys.exit(f"s3.py: {what}: status {status}: {body[:500].decode(errors='replace')}")
    return headers, body


def put(file, name):
    digest = hashlib.sha256()
    with open(file, "rb") as source:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
        length = source.tell()
        source.seek(0)
        headers, _ = must(request("PUT", "/" + name, body=source, length=length,
                                  digest=digest.hexdigest()), f"put {name}")
    print(headers.get("x-amz-version-id") or headers.get("etag") or "")


def get(name, file=None):
    _, body = must(request("GET", "/" + name), f"get {name}")
    if file:
        with open(file, "wb") as target:
            target.write(body)
    else:
        sys.stdout.buffer.write(body)


def names(bucket, prefix):
    token = None
    while True:
        query = {"list-type": "2", "prefix": prefix}
        if token:
            query["continuation-token"] = token
        _, body = must(request("GET", "/" + bucket, query=query), f"list {bucket}")
        tree = ElementTree.fromstring(body)
        space = tree.tag[:tree.tag.index("}") + 1] if tree.tag.startswith("{") else ""
        for entry in tree.iter(space + "Contents"):
            yield entry.findtext(space + "Key")
        token = tree.findtext(space + "NextContinuationToken")
        if not token:
            return


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    action, first, *rest = arguments
    if action == "mkbucket":
        must(request("PUT", "/" + first), f"make bucket {first}")
    elif action == "rmbucket":
        for name in list(names(first, "")):
            must(request("DELETE", f"/{first}/{name}"), f"delete {name}")
        must(request("DELETE", "/" + first), f"remove bucket {first}")
    elif action == "put":
        put(first, rest[0])
    elif action == "get":
        get(first, *rest)
    elif action == "delete":
        query = {"versionId": rest[0]} if rest else None
        must(request("DELETE", "/" + first, query=query), f"delete {first}")
    elif action == "list":
        bucket, _, prefix = first.partition("/")
        for name in names(bucket, prefix):
            print(name)
    elif action == "versioning":
        body = (b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
        must(request("PUT", "/" + first, query={"versioning": ""}, body=body), "versioning")
    elif action == "public":
        policy = ('{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*",'
                  '"Action":["s3:GetObject","s3:ListBucket"],'
                  f'"Resource":["arn:aws:s3:::{first}","arn:aws:s3:::{first}/*"]}}]}}').encode()
        must(request("PUT", "/" + first, query={"policy": ""}, body=policy), "policy")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

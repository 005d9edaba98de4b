# SPDX-License-Identifier: MIT
"""The part of faulty_origin.py that gives out credentials: a token service (STS), the
endpoint of a container, the metadata service of an instance.

    POST /sts                       AssumeRoleWithWebIdentity, AssumeRole
    GET  /container/PATH            keys, for the right Authorization line
    PUT  /latest/api/token          then GET /latest/meta-data/iam/security-credentials/[ROLE]

Control: POST /_/issuer sets what it names of
    lifetime       seconds that keys live (3600)
    role           of the instance, null: it has none ("wfs-role")
    token          the web identity token that is taken ("web-wfssecret")
    authorization  the line that the container must send, null: any (null)
    same           true: the keys given out last are given out again
    reset          true: all as at the start
    revoke         true: all keys given out so far have expired
    callers        {ACCESS_KEY: SECRET} who may assume roles
A bucket with {"bucket": NAME, "issued": true} takes keys that were given out and live.
"""
import datetime
import hashlib
import json
import threading
import time
import urllib.parse


def iso(when):
    return datetime.datetime.utcfromtimestamp(when).strftime("%Y-%m-%dT%H:%M:%SZ")


class Issuer:
    def __init__(self):
        self.lock = threading.Lock()
        self.reset()

    def reset(self):
        self.settings = {"lifetime": 3600, "role": "wfs-role", "token": "web-wfssecret",
                         "authorization": None, "same": False, "callers": {}}
        self.keys = {}
        self.last = None
        self.session = None

    def set(self, value):
        with self.lock:
            if value.pop("reset", False):
                self.reset()
            if value.pop("revoke", False):
                for keys in self.keys.values():
                    keys["expires"] = 0
            self.settings.update(value)

    def issue(self):
        """Keys that nobody had before, unless "same"."""
        with self.lock:
            if self.settings["same"] and self.last:
                return self.last
            number = len(self.keys) + 1
            keys = {"key": f"ISSUED{number}", "secret": f"issued-wfssecret-{number}",
                    "token": f"token-wfssecret-{number}/" + "t" * 700,
                    "expires": int(time.time()) + self.settings["lifetime"]}
            self.keys[keys["key"]] = keys
            self.last = keys
            return keys

    def find(self, key):
        with self.lock:
            return self.keys.get(key)

    def get(self, handler):
        """True: the request was one for credentials, and is answered."""
        name = handler.name
        if name == "/sts" and handler.command == "POST":
            self.sts(handler)
        elif name.startswith("/container/"):
            self.container(handler)
        elif name.startswith("/latest/"):
            self.instance(handler)
        else:
            return False
        return True

    def sts(self, handler):
        form = dict(urllib.parse.parse_qsl(handler.request_body.decode()))
        settings = self.settings
        action = form.get("Action")
        code = None
        if action == "AssumeRoleWithWebIdentity":
            if form.get("WebIdentityToken") != settings["token"]:
                code = "ExpiredTokenException"
        elif action == "AssumeRole":
            key = handler.signer()
            code = handler.wrong_signature(
                settings["callers"].get(key, ""), {"host", "x-amz-date"},
                hashlib.sha256(handler.request_body).hexdigest())
        else:
            code = "InvalidAction"
        if form.get("RoleArn", "")[:8] != "arn:aws:" or not form.get("RoleSessionName"):
            code = "ValidationError"
        if code:
            # The real one quotes the token in some messages.
            return handler.answer(400, {"Content-Type": "text/xml"}, (
                '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>'
                f"<Type>Sender</Type><Code>{code}</Code><Message>{settings['token']}</Message>"
                "</Error></ErrorResponse>").encode())
        keys = self.issue()
        return handler.answer(200, {"Content-Type": "text/xml"}, (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<{action}Result><AssumedRoleUser><Arn>{form['RoleArn']}</Arn></AssumedRoleUser>"
            f"<Credentials><AccessKeyId>{keys['key']}</AccessKeyId>"
            f"<SecretAccessKey>{keys['secret']}</SecretAccessKey>"
            f"<SessionToken>{keys['token']}</SessionToken>"
            f"<Expiration>{iso(keys['expires'])}</Expiration></Credentials></{action}Result>"
            f"</{action}Response>").encode())

    def give(self, handler):
        keys = self.issue()
        handler.answer(200, {"Content-Type": "application/json"}, json.dumps({
            "Code": "Success", "AccessKeyId": keys["key"], "SecretAccessKey": keys["secret"],
            "Token": keys["token"], "Expiration": iso(keys["expires"])}).encode())

    def container(self, handler):
        want = self.settings["authorization"]
        if want is not None and handler.headers.get("Authorization") != want:
            return handler.answer(401)
        return self.give(handler)

    def instance(self, handler):
        roles = "/latest/meta-data/iam/security-credentials/"
        role = self.settings["role"]
        if handler.name == "/latest/api/token":
            if handler.command != "PUT" or \
                    not handler.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                return handler.answer(400)
            self.session = f"session-wfssecret-{time.time()}"
            return handler.answer(200, {}, self.session.encode())
        if not self.session or handler.headers.get("X-aws-ec2-metadata-token") != self.session:
            return handler.answer(401)
        if role and handler.name == roles:
            return handler.answer(200, {}, role.encode())
        if role and handler.name == roles + role:
            return self.give(handler)
        return handler.answer(404)

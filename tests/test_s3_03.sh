#!/bin/bash
# SPDX-License-Identifier: MIT
# group: s3
# kernels: 6.12
# needs: ceph
# timeout: 300
#
# Keys that are no paths, markers, a key that is also a prefix, odd characters.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

[ -n "${WFS_S3_ENDPOINT-}" ] || skip_all "no S3 server (tests/ceph up)"
bucket=names-$WFS_RUN_ID
configure "[source s3://]
endpoint = $WFS_S3_ENDPOINT
access_key = $WFS_S3_KEY
secret_key = $WFS_S3_SECRET"
require s3 mkbucket "$bucket"
mkdir -p "$tmp/keys"
cat >"$tmp/put.py" <<-'PY'
import os, sys
sys.path.insert(0, sys.argv[2])
import s3
keys = ["plain", "a//b", "a/./c", "a/../d", "/lead", "../up", "x//", "marker/", "out", "out/x",
        "deep/er/file", "sessions.json", "long/" + "n" * 300, "hash#tag", "what?", "100%", "a+b",
        "a b", "a&b", "pc%25", "\u00fcml\u00e4ut", "line\nfeed", "quo'te", "star*", "a=b", "~tilde"]
for key in keys:
    status, _, body = s3.request("PUT", f"/{sys.argv[1]}/{key}", body=("of " + key).encode())
    print(status, repr(key), file=sys.stderr)
    if status // 100 != 2 and not (".." in key or "//" in key or key.startswith("/")):
        sys.exit(f"{key!r}: {body!r}")
PY
require python3 "$tmp/put.py" "$bucket" "$tests"
require start_wfsd
require mount_wfs "s3://$bucket" "$mnt"

is "$(cat "$mnt/deep/er/file")" "of deep/er/file" "N6: the first open after a mount, no marker anywhere"
odd=('hash#tag' 'what?' '100%' 'a+b' 'a b' 'a&b' 'pc%25' 'ümläut' 'line
feed' "quo'te" 'star*' 'a=b' '~tilde' plain)
for name in "${odd[@]}"; do
	is "$(cat "$mnt/$name" 2>&1)" "of $name" "N2: read $(printf %q "$name")"
done
is "$(find "$mnt" -maxdepth 1 -mindepth 1 -type f -printf x | wc -c)" 15 "the files at the top are listed"
check "sessions.json is there" test -f "$mnt/sessions.json"
check_fails "N3: sessions.jso is not" "No such file" stat "$mnt/sessions.jso"
check "N4: a marker is a directory" test -d "$mnt/marker"
is "$(ls "$mnt/marker")" "" "an empty one"
check "N5: out is the directory" test -d "$mnt/out"
is "$(cat "$mnt/out/x")" "of out/x" "N5: what is below it is read"
is "$(find "$mnt" -maxdepth 1 -name out -printf x)" x "it is listed once"
is "$(ls -A "$mnt/a")" "" "N1: keys that are no paths are not shown"
is "$(ls "$mnt/long")" "" "nor those that are too long"
check "everything listed can be asked for" find "$mnt" -type f -exec cat '{}' +
check "N1: nothing leads outside" sh -c "! find '$mnt' -name '..*'| grep -q ."

#!/bin/bash
# SPDX-License-Identifier: MIT
# group: credentials
# full: yes
# kernels: 6.12
# timeout: 240
#
# Credentials that end while a file is read, that are wrong, and that come later (A1 to A3).
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

port=8097
url=http://127.0.0.1:$port
size=$((24 * 1024 * 1024))
mib=$((1024 * 1024))
profile=$tmp/aws-credentials
require start_server "$port" python3 "$tests/faulty_origin.py" --port "$port"

# tell WHAT JSON: fault, s3 or issuer.
tell() {
	curl -sf -o "$tmp/reply" -d "$2" "$url/_/$1"
}
# forget: the log and all faults.
forget() {
	curl -sf -o "$tmp/reply" -X DELETE "$url/_/log" -X DELETE "$url/_/fault" &&
		curl -sf -o "$tmp/reply" -X DELETE "$url/_/log"
}
count() {
	curl -sf "$url/_/count?method=$1&path=$2" | tr -dc 0-9
}
put() {
	curl -sf -o "$tmp/reply" -X PUT --data-binary "@$root/model.bin" "$url/_/file/$1"
}
write_profile() {
	printf '[weights]\naws_access_key_id = AK\naws_secret_access_key = %s\n%s\n' "$1" \
		"${2:+aws_session_token = $2}" >"$profile.new"
	mv "$profile.new" "$profile"
}
# right FD MIB: that MiB of the open file is as in the reference.
right() {
	part "$1" $(($2 * mib)) "$mib" >"$tmp/part" && cmp "$tmp/part" <(tail -c +$(($2 * mib + 1)) \
		"$root/model.bin" | head -c "$mib")
}
origin() {
	wfs stat --json | jq -r --arg name "$1" ".origins[] | select(.origin | contains(\$name)) | .$2"
}

make_data "$root" model.bin "$size"
for name in b/model.bin p/model.bin w/model.bin d/model.bin signed/blob; do
	require put "$name"
done
export AWS_ENDPOINT_URL_STS=$url/sts AWS_EC2_METADATA_DISABLED=true
export AWS_WEB_IDENTITY_TOKEN_FILE=$tmp/token AWS_ROLE_ARN=arn:aws:iam::1:role/reader
export AWS_SHARED_CREDENTIALS_FILE=$profile AWS_CONFIG_FILE=$tmp/aws-config
printf 'web-wfssecret' >"$AWS_WEB_IDENTITY_TOKEN_FILE"
write_profile right-wfssecret old-wfssecret
configure "[fetch]
retry_budget = 20
[log]
level = debug
[source s3://]
endpoint = $url
[source s3://w/secret]
endpoint = $url
access_key = AK
secret_key = wrong-wfssecret
[source s3://w/key]
endpoint = $url
access_key = nobody
secret_key = right-wfssecret"
require tell s3 '{"bucket": "b", "issued": true}'
require tell s3 '{"bucket": "p", "key": "AK", "secret": "right-wfssecret", "token": "old-wfssecret"}'
require tell s3 '{"bucket": "w", "key": "AK", "secret": "right-wfssecret"}'
require start_wfsd

# ---- A1: a session of STS ends in mid-file

require mount_wfs s3://b "$mnt" block=1M
exec {fd}<"$mnt/model.bin"
check "by a role of STS" right "$fd" 0
is "$(count POST /sts)" 1 "STS was asked once"
is "$(origin /b/ credentials)" web-identity "wfs stat names the source"
at_least "$(origin /b/ credentials_expire)" $(($(date +%s) + 3000)) "and the end of the session"
require tell issuer '{"revoke": true}'
check "A1: the session has ended: the open file reads on" right "$fd" 14
is "$(count POST /sts)" 2 "STS was asked once more"
require tell fault '{"path": "/sts", "kind": "status", "code": 503, "times": 2}'
require tell issuer '{"revoke": true}'
check "A1: and while STS is unwell" soon 20 right "$fd" 19
exec {fd}<&-
reading "the file by mmap" st-lazy "$mnt/model.bin" "$root/model.bin"
require stored "$mnt/model.bin"
require umount "$mnt"

# Other keys of the same role: what is cached stays.
require stop_wfsd
require forget
require start_wfsd
require mount_wfs s3://b "$mnt" block=1M
drop_caches
reading "another session of the same role" eager "$mnt/model.bin" "$root/model.bin"
is "$(count GET /b/model.bin)" 0 "reads what the last one cached"
is "$(count POST /sts)" 1 "it is another one"
require umount "$mnt"

# ---- A1: a fresh token on disk

require mount_wfs s3://p "$mnt" block=1M,profile=weights
exec {fd}<"$mnt/model.bin"
check "by a profile" right "$fd" 0
is "$(origin /p/ credentials)" profile "wfs stat names it"
write_profile right-wfssecret new-wfssecret
require tell s3 '{"bucket": "p", "key": "AK", "secret": "right-wfssecret",
	"token": "new-wfssecret", "expired": ["old-wfssecret"]}'
check "A1: its token has expired, a fresh one is on disk" right "$fd" 14
require forget
require tell s3 '{"bucket": "p", "key": "AK", "secret": "right-wfssecret",
	"token": "newest-wfssecret", "expired": ["new-wfssecret"]}'
check_fails "expired, and no other on disk" EACCES right "$fd" 19
is "$(count GET /p/model.bin)" 1 "is said after one attempt"
write_profile right-wfssecret newest-wfssecret
check "until there is one" soon 10 right "$fd" 19
exec {fd}<&-
require umount "$mnt"

# ---- A2: a signed URL ends in mid-file

require forget
require tell fault "[{\"path\": \"/d/model.bin\", \"kind\": \"redirect\",
	\"to\": \"$url/signed/blob?X-Amz-Signature=sig-wfssecret\"},
	{\"path\": \"/signed/blob\", \"method\": \"GET\", \"kind\": \"status\", \"code\": 403,
	\"from\": $((12 * mib)), \"times\": 1, \"body\": \"<Error><Code>AccessDenied</Code></Error>\"}]"
require mount_wfs "$url/d" "$mnt" block=1M
exec {fd}<"$mnt/model.bin"
check "by a signed URL" right "$fd" 0
check "A2: it has expired: asked for again, the read goes on" right "$fd" 14
is "$(count GET /d/model.bin)" "$(count GET /signed/blob)" "each signature is used once"
exec {fd}<&-
reading "the whole file" eager "$mnt/model.bin" "$root/model.bin"
require umount "$mnt"

# ---- A3: wrong secrets

require forget
check_fails "A3: a wrong secret" "secret key is wrong" mount_wfs s3://w/secret "$mnt"
is "$(count GET /w/)" 1 "is said after one attempt"
check_fails "an unknown key" "does not know the access key" mount_wfs s3://w/key "$mnt"
is "$(count GET /w/)" 2 "after one attempt"
require tell fault '{"path": "/sts", "kind": "status", "code": 403,
	"body": "<E><Code>AccessDenied</Code></E>"}'
require stop_wfsd
require start_wfsd
check_fails "a role that may not be assumed" "arn:aws:iam::1:role/reader" mount_wfs s3://b "$mnt"
is "$(count POST /sts)" 1 "after one attempt"
require forget

# No credentials at all, and then a profile, without a restart.
require stop_wfsd
unset AWS_WEB_IDENTITY_TOKEN_FILE
require start_wfsd
check_fails "no credentials" "without credentials (403)" mount_wfs s3://w "$mnt"
check_fails "it says where they were looked for" "$profile" mount_wfs s3://w "$mnt"
printf '[default]\naws_access_key_id = AK\naws_secret_access_key = right-wfssecret\n' >"$profile"
check "they are there: the next mount finds them" mount_wfs s3://w "$mnt"
is "$(origin "default:AK" credentials)" profile "in the profile"
reading "and reads" eager "$mnt/model.bin" "$root/model.bin"
require umount "$mnt"

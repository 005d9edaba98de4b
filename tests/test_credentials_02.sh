#!/bin/bash
# SPDX-License-Identifier: MIT
# group: credentials
# where: host
# kernels: none
# timeout: 120
#
# Each source of credentials, by a daemon without the kernel, and that none of it shows.
. "$(dirname "$0")/lib.sh"
. "$tests/secrets.sh"

PATH=${WFS_HELPER:-$tests/../build/helper}:$PATH
export WFS_SOCKET=$tmp/wfsd.sock
wfsd_sock=$WFS_SOCKET
wfsd_log=$tmp/wfsd.log
port=18182
url=http://127.0.0.1:$port

start_native() {
	rm -f "$WFS_SOCKET"
	env -u AWS_PROFILE -u AWS_REGION -u AWS_ACCESS_KEY_ID \
		AWS_SHARED_CREDENTIALS_FILE="$tmp/credentials" AWS_CONFIG_FILE="$tmp/config" \
		AWS_EC2_METADATA_DISABLED=true AWS_ENDPOINT_URL_STS="$url/sts" "$@" \
		wfsd --no-kernel --foreground --config "$tmp/conf" --cache-dir "$tmp/cache" \
		--control-socket "$WFS_SOCKET" --metrics-listen 127.0.0.1:19420 \
		--log-level debug >>"$wfsd_log" 2>&1 &
	wfsd_pid=$!
	soon 30 answering
}

cleanup() {
	stop_wfsd
	kill "$server_pid" 2>/dev/null
}
trap 'cleanup; tap_end' EXIT

tell() {
	curl -sf -o "$tmp/reply" -d "$2" "$url/_/$1"
}

origin() {
	wfs stat --json | jq -r ".origins[0].$1"
}

# by SOURCE VARIABLE...: a daemon with this environment fetches, signed with what was given out.
by() {
	local source=$1

	shift
	require start_native "$@"
	check "$source: an object is fetched" wfs fetch s3://b/x
	is "$(origin credentials)" "$source" "$source: wfs stat says so"
	check "$source: /proc shows no secret" nothing_in "/proc/$wfsd_pid/cmdline"
	check "$source: wfs stat shows none" sh -c "! wfs stat --json | grep -E '$secret_pattern'"
	check "$source: nor do the metrics" \
		sh -c "! curl -s http://127.0.0.1:19420/metrics | grep -E '$secret_pattern'"
	is "$(awk '/^Max core/ { print $5, $6 }' "/proc/$wfsd_pid/limits")" "0 0" "$source: no core file"
	require stop_wfsd
}

nothing_in() {
	! grep -alE "$secret_pattern" "$@"
}

require start_server "$port" python3 "$tests/faulty_origin.py" --port "$port"
head -c 100000 /dev/zero >"$tmp/x"
require curl -sf -o "$tmp/reply" -X PUT --data-binary "@$tmp/x" "$url/_/file/b/x"
printf '[source s3://]\nendpoint = %s\n' "$url" >"$tmp/conf"
printf 'web-wfssecret\n' >"$tmp/token"
require tell s3 '{"bucket": "b", "issued": true}'

by web-identity AWS_WEB_IDENTITY_TOKEN_FILE="$tmp/token" AWS_ROLE_ARN=arn:aws:iam::1:role/r
at_least "$(curl -sf "$url/_/count?method=POST&path=/sts" | tr -dc 0-9)" 1 "STS was asked"
require tell issuer '{"authorization": "container-wfssecret"}'
by container AWS_CONTAINER_CREDENTIALS_FULL_URI="$url/container/v1" \
	AWS_CONTAINER_AUTHORIZATION_TOKEN=container-wfssecret
by instance AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT="$url"

require tell issuer '{"callers": {"CALLER": "caller-wfssecret"}}'
printf '[base]\naws_access_key_id = CALLER\naws_secret_access_key = caller-wfssecret\n' \
	>"$tmp/credentials"
printf '[profile reader]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n' >"$tmp/config"
by profile AWS_PROFILE=reader
require tell s3 '{"bucket": "b", "key": "CALLER", "secret": "caller-wfssecret"}'
by profile AWS_PROFILE=base
by environment AWS_ACCESS_KEY_ID=CALLER AWS_SECRET_ACCESS_KEY=caller-wfssecret
printf 'access_key = CALLER\nsecret_key = caller-wfssecret\n' >>"$tmp/conf"
by configuration AWS_ACCESS_KEY_ID=OTHER AWS_SECRET_ACCESS_KEY=other-wfssecret

# Refused, with every kind of secret around: sentences and log stay clean.
printf '[source s3://]\nendpoint = %s\nsecret_key = lost-wfssecret\naccess_key = CALLER\n' \
	"$url" >"$tmp/conf"
printf '[source %s]\nheader = X-Key: header-wfssecret\nbearer_file = %s\n' "$url" "$tmp/token" \
	>>"$tmp/conf"
require start_native
check_fails "a wrong secret" "secret key is wrong" wfs fetch s3://b/x
check_fails "a wrong secret, without itself" "" sh -c "wfs ls s3://b/ 2>&1 | grep wfssecret"
require tell fault '{"path": "/d/*", "kind": "status", "code": 401}'
check_fails "a token that is refused" "401" wfs fetch "$url/d/x"
check "the log shows no secret" nothing_in "$wfsd_log"
check "nor does the index of the cache" nothing_in -r "$tmp/cache/index"
check "what is looked for would be found" grep -q wfssecret "$tmp/conf"

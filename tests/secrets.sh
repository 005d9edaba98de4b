# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Every secret that a test gives to a program of ours has this in it: keys, tokens,
# signatures, header lines. session.sh looks for it after each file, wherever nothing of
# the kind belongs. The second one is of a user of the Ceph cluster.
# shellcheck disable=SC2034
secret_pattern='wfssecret|othersecret'

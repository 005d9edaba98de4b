#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# where: vm
# kernels: 6.1 6.12 debug
#
# A helper whose threads die, that asks itself, or that duplicates its descriptor.
. "$(dirname "$0")/lib.sh"

require load_module
run_tap "worker" "$bin/uapi_worker" /mnt
check "the module unloads" unload_module

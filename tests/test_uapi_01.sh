#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# where: vm
# kernels: 6.1 6.12
#
# Every input of the device's ioctls and commands that must be refused.
. "$(dirname "$0")/lib.sh"

require load_module
run_tap "misuse" "$bin/uapi_misuse"
check "the module unloads" unload_module

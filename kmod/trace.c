// SPDX-License-Identifier: GPL-2.0-only
/* trace: the tracepoints of trace.h are made here. */
#define CREATE_TRACE_POINTS
#include "trace.h"

// SPDX-License-Identifier: MIT
#include "rig_faulty.h"

#include <stdlib.h>

struct rig rig;
struct faulty faulty;
char *bytes;

int rig_faulty_group(size_t size)
{
	bytes = rig_bytes(size, 1);
	faulty_start(&faulty);
	if (size)
		faulty_put(&faulty, "/f?modified=1000000000", bytes, size);
	return 0;
}

int rig_faulty_group_end(void **state)
{
	(void)state;
	faulty_stop(&faulty);
	free(bytes);
	return 0;
}

int rig_faulty_create(void **state)
{
	(void)state;
	faulty_clear(&faulty);
	rig_create(&rig);
	return 0;
}

int rig_faulty_start(void **state)
{
	rig_faulty_create(state);
	rig_start(&rig);
	return 0;
}

int rig_faulty_end(void **state)
{
	(void)state;
	faulty_clear(&faulty);
	rig_destroy(&rig);
	return 0;
}

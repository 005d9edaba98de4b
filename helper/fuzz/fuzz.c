// SPDX-License-Identifier: MIT
#include "fuzz.h"

#include <limits.h>
#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "origin_impl.h"

/* A listing's entry is some 300 bytes and may be made of some ten; lists double as they grow. */
#define MEMORY_FIXED (512u << 10)
#define MEMORY_TIMES 48u

#define FILES 4

static bool memory_hooked;
static size_t memory_now, memory_most;

_Noreturn void fuzz_fail(const char *file, int line, const char *condition)
{
	fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, condition);
	abort();
}

uint8_t fuzz_byte(struct fuzz_input *input)
{
	return (uint8_t)fuzz_number(input, 1);
}

uint32_t fuzz_number(struct fuzz_input *input, unsigned int bytes)
{
	uint32_t number = 0;

	for (unsigned int i = 0; i < bytes && input->left; i++) {
		number |= (uint32_t)*input->at++ << (8 * i);
		input->left--;
	}
	return number;
}

char *fuzz_bytes(struct fuzz_input *input, size_t len, size_t *ret_len)
{
	char *copy;

	if (len > input->left)
		len = input->left;
	copy = malloc(len + 1);
	if (!copy)
		abort();
	if (len)
		memcpy(copy, input->at, len);
	copy[len] = '\0';
	input->at += len;
	input->left -= len;
	if (ret_len)
		*ret_len = len;
	return copy;
}

char *fuzz_line(struct fuzz_input *input)
{
	const uint8_t *end = input->left ? memchr(input->at, '\n', input->left) : NULL;
	char *line = fuzz_bytes(input, end ? (size_t)(end - input->at) : input->left, NULL);

	fuzz_number(input, 1);
	return line;
}

char *fuzz_rest(struct fuzz_input *input, size_t *ret_len)
{
	return fuzz_bytes(input, input->left, ret_len);
}

const char *fuzz_file(unsigned int which, const void *bytes, size_t len)
{
	static int fds[FILES] = { -1, -1, -1, -1 };
	static char paths[FILES][32];

	if (fds[which] < 0) {
		fds[which] = memfd_create("fuzz", MFD_CLOEXEC);
		snprintf(paths[which], sizeof(paths[which]), "/proc/self/fd/%d", fds[which]);
	}
	if (ftruncate(fds[which], 0) || pwrite(fds[which], bytes, len, 0) != (ssize_t)len)
		abort();
	return paths[which];
}

static void on_malloc(const volatile void *memory, size_t size)
{
	(void)memory;
	memory_now += size;
	if (memory_now > memory_most)
		memory_most = memory_now;
}

static void on_free(const volatile void *memory)
{
	if (memory)
		memory_now -= __sanitizer_get_allocated_size((const void *)memory);
}

void fuzz_memory_begin(void)
{
	if (!memory_hooked)
		__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
	memory_hooked = true;
	/* Far from 0: what was taken before may be given back meanwhile. */
	memory_now = memory_most = (size_t)1 << 40;
}

void fuzz_memory_check(size_t len)
{
	fuzz_check(memory_most - ((size_t)1 << 40) <= MEMORY_FIXED + MEMORY_TIMES * len);
}

bool fuzz_name_good(const char *name, size_t len)
{
	bool dots = true;

	for (size_t i = 0; i < len; i++) {
		if (name[i] == '/' || name[i] == '\0')
			return false;
		dots = dots && name[i] == '.';
	}
	return len && len <= NAME_MAX && !(dots && len <= 2);
}

void fuzz_check_page(const struct origin_page *page)
{
	fuzz_check(page->count <= page->size);
	for (size_t i = 0; i < page->count; i++) {
		const struct origin_attr *attr = &page->entries[i].attr;

		fuzz_check(fuzz_name_good(page->entries[i].name, strlen(page->entries[i].name)));
		fuzz_check(attr->mode == S_IFREG || attr->mode == S_IFDIR);
		fuzz_check(attr->size <= INT64_MAX);
		fuzz_check(!S_ISDIR(attr->mode) || !attr->size);
		fuzz_check(attr->mtime_nsec < 1000000000);
		/* Listings prove no version. */
		fuzz_check(!attr->version[0]);
	}
}

void fuzz_check_printable(const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	fuzz_check(len < size);
	for (size_t i = 0; i < len; i++)
		fuzz_check(text[i] >= ' ' && text[i] <= '~');
}

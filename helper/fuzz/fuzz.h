/* SPDX-License-Identifier: MIT */
/*
 * fuzz: what the fuzz targets share.
 *
 * A target defines LLVMFuzzerTestOneInput() of libFuzzer. It feeds the input to a parser
 * and checks what must hold for any input, beside what the sanitizers see.
 */
#ifndef WFS_FUZZ_H
#define WFS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct origin_page;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* What must hold; else the target ends and libFuzzer keeps the input. */
#define fuzz_check(condition)                                      \
	do {                                                       \
		if (!(condition))                                  \
			fuzz_fail(__FILE__, __LINE__, #condition); \
	} while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *condition);

/* An input being taken apart, front to back. Past its end all is 0. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

uint8_t fuzz_byte(struct fuzz_input *input);
uint32_t fuzz_number(struct fuzz_input *input, unsigned int bytes);
/* Up to len bytes, or to the next line feed (which is passed over), or all: NUL-terminated copies. */
char *fuzz_bytes(struct fuzz_input *input, size_t len, size_t *ret_len);
char *fuzz_line(struct fuzz_input *input);
char *fuzz_rest(struct fuzz_input *input, size_t *ret_len);

/* A file with these bytes, the same one again and again: its path. */
const char *fuzz_file(unsigned int which, const void *bytes, size_t len);

/*
 * Memory taken from here on: the most at one time must stay below a bound that goes
 * with the input's length.
 */
void fuzz_memory_begin(void);
void fuzz_memory_check(size_t len);

/* Can it be a file's? Said without the code that is tested. */
bool fuzz_name_good(const char *name, size_t len);
/* Each entry of a page is one that may be shown. */
void fuzz_check_page(const struct origin_page *page);
/* Ends with NUL within size, nothing but printable ASCII. */
void fuzz_check_printable(const char *text, size_t size);

#endif /* WFS_FUZZ_H */

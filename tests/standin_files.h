/* SPDX-License-Identifier: MIT */
/* standin_files: the files of the stand-in, and right answers. One thread at a time. */
#ifndef WFS_TESTS_STANDIN_FILES_H
#define WFS_TESTS_STANDIN_FILES_H

#include <wfs.h>
#include "standin.h"
#include "standin_fault.h"

#define FILES_DATA (1u << 20) /* where object bytes lie in the registered memory; replies before */

/* A version of a file that the kernel has opened. */
struct node {
	struct node *next;
	uint64_t id, mount;
	struct file *file;
	uint32_t block_shift;
	int fd;
	uint8_t *stored; /* a byte a block */
};

extern struct script files_script;
extern char *files_memory; /* registered, set by whoever did so */

struct node *files_node(uint64_t id);
/* Node of the file's last version, or NULL. */
struct node *files_node_at(const char *path);
uint64_t files_blocks(const struct node *node);
/* Sums of a block, one a unit; their number. */
size_t files_sums(const struct node *node, uint64_t block, uint64_t *to);
/* Writes a block to the cache file: 0 or -errno. */
int files_write(const struct node *node, uint64_t block);
/* Stores a block that was delivered, or drops it, and says so. */
void files_store(struct node *node, uint64_t block);
/* The right reply; a and b are the strings of the request, or empty. */
void files_reply(struct reply *reply, const struct wfs_request *request, const char *a,
		 const char *b);
void files_forget(uint64_t id);

#endif /* WFS_TESTS_STANDIN_FILES_H */

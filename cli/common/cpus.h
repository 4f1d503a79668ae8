/* Which processors a tool runs on. */
#ifndef TREADLE_CLI_CPUS_H
#define TREADLE_CLI_CPUS_H

#include <stddef.h>

/* Room for the text of any set of processors that sched_getaffinity can tell. */
#define TDL_CPUS_TEXT 4096

/* Writes the processors this thread may run on, as in `0-2,5`.
 * Thread:  any
 * Owns:    nothing
 * Errors:  an empty text when the kernel does not tell
 * Cost:    one system call */
void tdl_cpus_describe(char *text, size_t size);

/* Binds this thread, and those it will start, to the processors of a list such as `0-2,5`.
 * Thread:  owner, before other threads are made
 * Owns:    nothing
 * Errors:  -EINVAL for what is no such list or names a processor that this process may not use; a negative
 *          errno
 * Cost:    two system calls */
int tdl_cpus_bind(const char *list);

#endif

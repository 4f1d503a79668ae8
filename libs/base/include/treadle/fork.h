/* A count of the forks that made this process. An object that lives in one process writes down what it was
 * born with; another number means that it is in a child, where its threads do not run and its kernel
 * objects are the parent's.
 *
 * Example:
 *     tdl_fork_watch();
 *     uint32_t born = tdl_fork_count();
 *     if (tdl_fork_count() != born)
 *         puts("a child");
 */
#ifndef TREADLE_FORK_H
#define TREADLE_FORK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins to count; forks before the first call are not counted. Call it before an object writes the count
 * down.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none; without memory for the handler of forks the count stands still
 * Cost:    O(1) */
void tdl_fork_watch(void);

/* Forks between the first tdl_fork_watch and here, on the way down to this process. vfork and posix_spawn
 * do not count.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one load */
uint32_t tdl_fork_count(void);

#ifdef __cplusplus
}
#endif

#endif

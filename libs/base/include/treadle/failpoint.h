/* Failure injection: tests make the n-th allocation or system call of a run fail, for every n. Built in
 * with TDL_FAILPOINTS only; otherwise the macros are constants and the functions do not exist.
 *
 * Example:
 *     int fd = TDL_SYSCALL(EMFILE, dup(1));
 *     if (fd >= 0)
 *         close(fd);
 *     else
 *         printf("%d\n", errno);
 */
#ifndef TREADLE_FAILPOINT_H
#define TREADLE_FAILPOINT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tdl_failpoint {
    TDL_FAIL_ALLOC,   /* tdl_malloc, tdl_calloc, tdl_realloc */
    TDL_FAIL_SYSCALL, /* calls wrapped in TDL_SYSCALL */
    TDL_FAIL_THREAD,  /* thread starts */
    TDL_FAIL_KINDS
};

#ifdef TDL_FAILPOINTS

/* Counts one pass and says whether it is the one that has to fail.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one atomic addition */
bool tdl_failpoint_hit(enum tdl_failpoint kind);

/* Starts counting anew and makes the nth pass from now fail, once; 0 lets all pass.
 * Thread:  any, but no other thread may be passing the failpoint
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
void tdl_failpoint_set(enum tdl_failpoint kind, uint64_t nth);

/* Returns the passes since the last set.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
uint64_t tdl_failpoint_count(enum tdl_failpoint kind);

#define TDL_FAIL(kind) tdl_failpoint_hit(kind)
#else
#define TDL_FAIL(kind) false
#endif

/* Evaluates `call`, or with an injected failure sets errno to `error` and yields -1 instead.
 * Thread:  as the call
 * Owns:    as the call
 * Errors:  as the call
 * Cost:    the call */
#define TDL_SYSCALL(error, call) (TDL_FAIL(TDL_FAIL_SYSCALL) ? (errno = (error), -1) : (call))

#ifdef __cplusplus
}
#endif

#endif

/* SIGINT, SIGTERM and SIGHUP end a measuring tool at once and in order: what was measured is written, what
 * was made is removed. A thread waits for them, so neither has to be done inside a signal handler. */
#ifndef TREADLE_CLI_STOP_H
#define TREADLE_CLI_STOP_H

#define TDL_EXIT_STOPPED 130 /* ended by a signal */

/* Starts the thread that waits. On a signal it takes the guard for good, calls `finish(data)` and ends the
 * process with TDL_EXIT_STOPPED. A signal that was ignored when the tool began stays ignored. SIGPIPE is
 * ignored: a reader that goes away costs the printed lines and not the results.
 * Thread:  owner, before any other thread is made: they inherit the mask
 * Owns:    the caller keeps data until the process ends
 * Errors:  a negative errno
 * Cost:    a thread */
int tdl_stop_watch(void (*finish)(void *data), void *data);

/* Keeps the process from ending between the two calls, so that what is made in between is known to `finish`.
 * Does not nest.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none; does not return once the process is ending
 * Cost:    a mutex */
void tdl_stop_guard(void);

/* Ends what tdl_stop_guard began.
 * Thread:  the one that called tdl_stop_guard
 * Owns:    nothing
 * Errors:  none
 * Cost:    a mutex */
void tdl_stop_unguard(void);

/* Gives a forked child the signals as the tool found them; to be called before its exec.
 * Thread:  the child's only one
 * Owns:    nothing
 * Errors:  none
 * Cost:    two system calls */
void tdl_stop_after_fork(void);

#endif

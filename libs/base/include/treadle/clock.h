/* The one reader of clocks, and the way from nanoseconds to the kernel's struct timespec.
 *
 * Example:
 *     uint64_t begin_ns = tdl_clock_ns();
 *     struct timespec until = tdl_clock_timespec(begin_ns + 5 * TDL_NS_PER_S);
 *     printf("%ld\n", (long)until.tv_sec);
 */
#ifndef TREADLE_CLOCK_H
#define TREADLE_CLOCK_H

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TDL_NS_PER_MS UINT64_C(1000000)
#define TDL_NS_PER_S UINT64_C(1000000000)

/* Nanoseconds on the clock that nobody sets (CLOCK_MONOTONIC).
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    some 20 ns, no system call */
uint64_t tdl_clock_ns(void);

/* Processor time that the calling thread has used.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one system call */
uint64_t tdl_clock_thread_ns(void);

/* Processor time that all threads of the process have used.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one system call */
uint64_t tdl_clock_process_ns(void);

/* A time or a span in nanoseconds as the kernel takes it.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one division */
struct timespec tdl_clock_timespec(uint64_t ns);

#ifdef __cplusplus
}
#endif

#endif

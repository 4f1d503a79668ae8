/* A stall detector: when a race test makes no end in time, it says what both sides were doing and aborts. */
#ifndef TREADLE_TESTS_STALL_H
#define TREADLE_TESTS_STALL_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "treadle/atomic.h"

/* Words of both sides, written by the test as it goes. */
static tdl_atomic_u32 stall_owner_step;
static tdl_atomic_u32 stall_worker_step;
static tdl_atomic_u32 stall_round;

static inline void stall_report(int number)
{
    char text[128];
    int length =
        snprintf(text, sizeof text, "stalled: round %u, owner at step %u, worker at step %u\n",
                 (unsigned)tdl_load_seq_u32(&stall_round), (unsigned)tdl_load_seq_u32(&stall_owner_step),
                 (unsigned)tdl_load_seq_u32(&stall_worker_step));
    ssize_t wrote = length > 0 ? write(STDERR_FILENO, text, (size_t)length) : 0;
    (void)wrote;
    (void)number;
    abort();
}

#ifndef STALL_SECONDS
#define STALL_SECONDS 100
#endif

static inline void stall_watch(void)
{
    struct sigaction action = {.sa_handler = stall_report};
    (void)sigaction(SIGALRM, &action, NULL);
    (void)alarm(STALL_SECONDS);
}

/* How often a race is tried: less under a sanitizer, which sets the scale, and as many as TDL_TEST_ROUNDS
 * says. */
static inline unsigned stall_rounds(unsigned usual)
{
    const char *rounds = getenv("TDL_TEST_ROUNDS");
    const char *scale = getenv("TDL_TEST_SCALE");
    if (rounds != NULL) {
        return (unsigned)strtoul(rounds, NULL, 10);
    }
    return scale != NULL ? usual / (unsigned)strtoul(scale, NULL, 10) : usual;
}

#endif

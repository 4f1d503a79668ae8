/* Included ahead of the pool's own sources to weaken one order of MO-5; the race tests must then fail. The
 * pause widens the gap between the two halves, so that they fail on two cores as well. */
#ifndef TREADLE_TESTS_MUTANT_H
#define TREADLE_TESTS_MUTANT_H

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "treadle/atomic.h"

/* A broken pool may end in any way; each is the failure that CTest waits for. */
static inline void mutant_end(int number)
{
    (void)number;
    _exit(1);
}

__attribute__((constructor)) static void mutant_load(void)
{
    const int endings[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        (void)signal(endings[i], mutant_end);
    }
}

static inline bool mutant_cas(tdl_atomic_u32 *word, uint32_t *expected, uint32_t desired)
{
    uint32_t now = tdl_load_relaxed_u32(word);
    if (now != *expected) {
        *expected = now;
        return false;
    }
    (void)sched_yield();
    tdl_store_relaxed_u32(word, desired);
    return true;
}

static inline uint32_t mutant_exchange(tdl_atomic_u32 *word, uint32_t desired)
{
    uint32_t now = tdl_load_relaxed_u32(word);
    (void)sched_yield();
    tdl_store_relaxed_u32(word, desired);
    return now;
}

#ifdef MUTANT_CAS
#define tdl_cas_acq_rel_u32 mutant_cas
#endif
#ifdef MUTANT_EXCHANGE
#define tdl_exchange_acq_rel_u32 mutant_exchange
#endif

#endif

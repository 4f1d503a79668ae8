#include "treadle/fork.h"

#include <pthread.h>

#include "treadle/atomic.h"

static tdl_atomic_u32 forks = TDL_ATOMIC_INIT(0);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void count_in_child(void)
{
    (void)tdl_fetch_add_relaxed_u32(&forks, 1);
}

static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, count_in_child);
}

void tdl_fork_watch(void)
{
    (void)pthread_once(&once, watch);
}

uint32_t tdl_fork_count(void)
{
    return tdl_load_relaxed_u32(&forks);
}

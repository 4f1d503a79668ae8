#include <errno.h>
#include <sched.h>
#include <stddef.h>

#include "treadle/lookup.h"

#define SLOTS_MAX 32u
#define CPUS_FIRST 1024u
#define CPUS_LAST (1024u * 1024u)

/* Counts by a mask that grows until the kernel's fits, since a machine may have more CPUs than cpu_set_t. */
static uint32_t affinity_cpus(void)
{
    for (size_t cpus = CPUS_FIRST; cpus <= CPUS_LAST; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL) {
            break;
        }
        size_t size = CPU_ALLOC_SIZE(cpus);
        int rc = sched_getaffinity(0, size, set);
        int why = errno;
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0) {
            return count > 0 ? (uint32_t)count : 1u;
        }
        if (why != EINVAL) {
            break;
        }
    }
    return 1u;
}

uint32_t tdl_lookup_slots(void)
{
    uint32_t slots = affinity_cpus() + 4u;
    return slots < SLOTS_MAX ? slots : SLOTS_MAX;
}

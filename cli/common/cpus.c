#include "cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tdl_cpus_describe(char *text, size_t size)
{
    cpu_set_t set;
    size_t used = 0;
    text[0] = '\0';
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    for (size_t first = 0; first < CPU_SETSIZE; first++) {
        if (!CPU_ISSET(first, &set)) {
            continue;
        }
        size_t last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) {
            last++;
        }
        const char *comma = used == 0 ? "" : ",";
        int n = last == first ? snprintf(text + used, size - used, "%s%zu", comma, first)
                              : snprintf(text + used, size - used, "%s%zu-%zu", comma, first, last);
        if (n < 0 || (size_t)n >= size - used) {
            return;
        }
        used += (size_t)n;
        first = last;
    }
}

/* Reads a number of a processor and moves *at behind it. */
static bool take_cpu(const char **at, long *cpu)
{
    char *end;
    if (**at < '0' || **at > '9') {
        return false;
    }
    *cpu = strtol(*at, &end, 10);
    *at = end;
    return *cpu < CPU_SETSIZE;
}

static bool parse(const char *list, cpu_set_t *set)
{
    CPU_ZERO(set);
    for (const char *at = list;; at++) {
        long first;
        long last;
        if (!take_cpu(&at, &first)) {
            return false;
        }
        last = first;
        if (*at == '-') {
            at++;
            if (!take_cpu(&at, &last) || last < first) {
                return false;
            }
        }
        for (long cpu = first; cpu <= last; cpu++) {
            CPU_SET((size_t)cpu, set);
        }
        if (*at == '\0') {
            return true;
        }
        if (*at != ',') {
            return false;
        }
    }
}

int tdl_cpus_bind(const char *list)
{
    cpu_set_t allowed;
    cpu_set_t wanted;
    cpu_set_t common;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return -errno;
    }
    if (!parse(list, &wanted)) {
        return -EINVAL;
    }
    CPU_AND(&common, &allowed, &wanted);
    if (!CPU_EQUAL(&common, &wanted)) {
        return -EINVAL;
    }
    return sched_setaffinity(0, sizeof wanted, &wanted) == 0 ? 0 : -errno;
}

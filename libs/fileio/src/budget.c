#include "budget.h"

#include <fcntl.h>

/* What a read from the page cache takes on the machines that it was measured on: the system call, and a
 * copy of eight bytes a nanosecond. An estimate that is wrong by half only moves the point at which a turn
 * goes on to other work. */
#define CALL_NS 600u
#define BYTES_PER_NS 8u

/* Misses in a row after which the backoff begins: fewer are what a sequence of reads has where it crosses
 * from one window of the kernel's read-ahead to the next. */
#define MISSES_FREE 3u

/* Misses at which the backoff is longest. Each one doubles it, from a 64th of a turn's budget up to all of
 * it: then one attempt in a turn's worth of reads is wasted, which costs a few percent, and a file that
 * has come into the cache is noticed within a turn or two. */
#define MISSES_MAX (MISSES_FREE + 6u)

uint32_t tdl__budget_hit_ns(uint64_t calls, uint64_t bytes)
{
    return (uint32_t)(calls * CALL_NS + bytes / BYTES_PER_NS);
}

void tdl__budget_spend(struct tdl_fio *f, uint64_t calls, uint64_t bytes)
{
    f->budget.spent_ns += tdl__budget_hit_ns(calls, bytes);
}

bool tdl__budget_skips(struct tdl_fio *f, uint64_t bytes)
{
    if (f->budget.skip_ns == 0) {
        return false;
    }
    uint32_t cost = tdl__budget_hit_ns(1, bytes);
    f->budget.skip_ns = cost < f->budget.skip_ns ? f->budget.skip_ns - cost : 0;
    return true;
}

void tdl__budget_hit(struct tdl_fio *f)
{
    f->stats.inlined++;
    f->budget.hot = true;
    f->budget.misses = 0;
}

/* A miss costs its call and begins the read of one page alone, which the kernel would do better for the
 * whole batch. So after MISSES_FREE misses in a row inline attempts are skipped with exponential backoff,
 * up to one turn's budget. */
void tdl__budget_miss(struct tdl_fio *f)
{
    TDL_ASSERT(f->budget.misses <= MISSES_MAX);
    f->stats.missed++;
    f->budget.hot = false;
    if (f->budget.misses < MISSES_MAX) {
        f->budget.misses = (uint8_t)(f->budget.misses + 1u);
    }
    f->budget.skip_ns =
        f->budget.misses > MISSES_FREE ? f->options.step_ns >> (MISSES_MAX - f->budget.misses) : 0;
}

bool tdl__budget_may_submit(const struct tdl_fio *f)
{
    return f->budget.submit_spent_ns <= f->options.step_ns / TDL_FIO_SUBMIT_SHARE;
}

void tdl__budget_submitted(struct tdl_fio *f, uint64_t bytes)
{
    if (f->budget.hot) {
        f->budget.submit_spent_ns +=
            tdl__budget_hit_ns(1, bytes < f->options.chunk_max ? bytes : f->options.chunk_max);
    }
}

void tdl__budget_renew_submissions(struct tdl_fio *f)
{
    f->budget.submit_spent_ns = 0;
}

/* Should the number be given to another file within the turn, a read that waits is all that can come of
 * it. */
bool tdl__budget_is_direct(struct tdl_fio *f, int fd)
{
    TDL_ASSERT(f->budget.direct_fd >= -1);
    if (fd != f->budget.direct_fd) {
        int flags = fcntl(fd, F_GETFL);
        f->budget.direct_fd = fd;
        f->budget.direct = flags < 0 || (flags & O_DIRECT) != 0;
    }
    return f->budget.direct;
}

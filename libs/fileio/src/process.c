/* What is known once per process: forks, the clock, engine names, and the right to a polling kernel thread. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "internal.h"
#include "treadle/atomic.h"
#include "uring/ring.h"

static tdl_atomic_u32 fork_count = TDL_ATOMIC_INIT(0);
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static pthread_once_t sqpoll_once = PTHREAD_ONCE_INIT;
static bool sqpoll_granted;

static void count_fork(void)
{
    (void)tdl_fetch_add_relaxed_u32(&fork_count, 1);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

uint32_t tdl__fork_epoch(void)
{
    (void)pthread_once(&fork_once, watch_forks);
    return tdl_load_relaxed_u32(&fork_count);
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t tdl__fio_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t tdl__fio_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

__attribute__((noinline)) int tdl__fio_wait_readable(int fd, uint64_t timeout_ns)
{
    struct pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};
    int ready = ppoll(&one, 1, timeout_ns == UINT64_MAX ? NULL : &limit, NULL);
    if (ready == 0)
        return -ETIMEDOUT;
    if (ready > 0 && (one.revents & POLLNVAL) != 0)
        return -EBADF;
    return ready > 0 || errno == EINTR ? 0 : -errno;
}

static void try_sqpoll(void)
{
    struct tdl__ring ring;
    struct tdl__ring_wish wish = {
        .sq_entries = 4, .cq_entries = 8, .flags_mask = UINT32_MAX, .sqpoll = true, .any_thread = true};
    sqpoll_granted = tdl__ring_open_proven(&ring, &wish) == 0;
    if (sqpoll_granted)
        tdl__ring_close(&ring);
}

bool tdl_fio_sqpoll_is_allowed(void)
{
    (void)pthread_once(&sqpoll_once, try_sqpoll);
    return sqpoll_granted;
}

static const char *const engine_names[TDL_FIO_ENGINES] = {
    [TDL_FIO_AUTO] = "auto",       [TDL_FIO_LINUX_URING] = "linux_uring", [TDL_FIO_LINUX_AIO] = "linux_aio",
    [TDL_FIO_THREADS] = "threads", [TDL_FIO_SIMULATED] = "simulated",
};

const char *tdl_fio_engine_name(unsigned engine)
{
    return engine < TDL_FIO_ENGINES ? engine_names[engine] : "unknown";
}

int tdl_fio_engine_by_name(const char *name)
{
    for (int engine = 0; name != NULL && engine < TDL_FIO_ENGINES; engine++)
        if (strcmp(engine_names[engine], name) == 0)
            return engine;
    return -EINVAL;
}

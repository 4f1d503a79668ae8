/* What is known once per process: engine names, and the right to a polling kernel thread. */
#include "internal.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "treadle/atomic.h"
#include "treadle/ring.h"

static pthread_once_t sqpoll_once = PTHREAD_ONCE_INIT;
static bool sqpoll_granted;

__attribute__((noinline)) int tdl__fio_wait_readable(int fd, uint64_t timeout_ns)
{
    struct pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
    struct timespec limit = tdl_clock_timespec(timeout_ns == UINT64_MAX ? 0 : timeout_ns);
    int ready = ppoll(&one, 1, timeout_ns == UINT64_MAX ? NULL : &limit, NULL);
    if (ready == 0) {
        return -ETIMEDOUT;
    }
    if (ready > 0 && (one.revents & POLLNVAL) != 0) {
        return -EBADF;
    }
    return ready > 0 || errno == EINTR ? 0 : -errno;
}

static void try_sqpoll(void)
{
    struct tdl_ring ring;
    struct tdl_ring_options wish = {
        .sq_entries = 4, .cq_entries = 8, .flags_mask = UINT32_MAX, .sqpoll = true, .any_thread = true};
    sqpoll_granted = tdl_ring_open_proven(&ring, &wish) == 0;
    if (sqpoll_granted) {
        tdl_ring_close(&ring);
    }
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
    for (int engine = 0; name != NULL && engine < TDL_FIO_ENGINES; engine++) {
        if (strcmp(engine_names[engine], name) == 0) {
            return engine;
        }
    }
    return -EINVAL;
}

/* The engines by number and by name, and the wait that they have in common. */
#include "internal.h"

#include <poll.h>
#include <string.h>

const struct tdl__fio_engine *tdl__engine_of(enum tdl_fio_engine id)
{
    switch (id) {
    case TDL_FIO_LINUX_AIO:
        return &tdl__fio_aio;
    case TDL_FIO_THREADS:
        return &tdl__fio_threads;
    case TDL_FIO_SIMULATED:
        return &tdl__fio_simulated;
    default:
        return &tdl__fio_uring;
    }
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

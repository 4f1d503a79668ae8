#include "treadle/wake.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/failpoint.h"
#include "treadle/status.h"

/* Reading the clock costs about as much as this many looks at the word. */
#define SPINS_PER_CLOCK 32
/* Writes of one notification. */
#define WAKE_TRIES 16

static int wake_open_fd(struct tdl_wake *w)
{
    w->fd = TDL_SYSCALL(EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    w->open = w->fd >= 0;
    return w->fd < 0 ? -errno : TDL_OK;
}

int tdl_wake_open(struct tdl_wake *w, const struct tdl_wake_options *options)
{
    tdl_atomic_init_u32(&w->state, TDL_WAKE_AWAKE);
    w->owed = 0;
    w->spin_ns = options != NULL ? options->spin_ns : 0;
    w->edge = options != NULL && options->edge;
    return wake_open_fd(w);
}

void tdl_wake_close(struct tdl_wake *w)
{
    if (w->open) {
        (void)close(w->fd);
    }
    w->fd = -1;
    w->open = false;
}

int tdl_wake_fd(const struct tdl_wake *w)
{
    return w->open ? w->fd : -1;
}

void tdl_wake_park_begin(struct tdl_wake *w)
{
    TDL_ASSERT(tdl_load_relaxed_u32(&w->state) == TDL_WAKE_AWAKE);
    tdl_store_seq_u32(&w->state, TDL_WAKE_WAITING); /* MO-1, parker: before the caller loads its queues */
}

/* Takes back the writes that were announced. One that is still under way stays owed and is read when a
 * later park ends; until then the descriptor may show readable once for nothing. */
static void wake_collect(struct tdl_wake *w)
{
    uint64_t count = 0;
    ssize_t got;

    do {
        got = read(w->fd, &count, sizeof count);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof count) {
        return;
    }
    w->owed -= count < w->owed ? (uint32_t)count : w->owed;
}

bool tdl_wake_park_end(struct tdl_wake *w)
{
    uint32_t state = tdl_exchange_acq_rel_u32(&w->state, TDL_WAKE_AWAKE); /* MO-2, parker */

    if (state == TDL_WAKE_NOTIFIED && !w->edge) {
        w->owed++;
    }
    if (w->owed > 0) {
        wake_collect(w);
    }
    return state == TDL_WAKE_NOTIFIED || state == TDL_WAKE_SIGNALED;
}

/* Watches the word until a notify changes it or `until_ns` has come; true if a notify came. */
static bool wake_spin_until(struct tdl_wake *w, uint64_t until_ns)
{
    uint32_t state = TDL_WAKE_WAITING;

    if (!tdl_cas_acq_rel_u32(&w->state, &state, TDL_WAKE_SPINNING)) { /* MO-2: spinning asks for no write */
        return true;
    }
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (tdl_load_acquire_u32(&w->state) != TDL_WAKE_SPINNING) {
                return true;
            }
            tdl_cpu_pause();
        }
    } while (tdl_clock_ns() < until_ns);
    state = TDL_WAKE_SPINNING;
    /* MO-1: still "not awake", and a notifier that saw SPINNING fails its CAS and looks again. */
    return !tdl_cas_acq_rel_u32(&w->state, &state, TDL_WAKE_WAITING);
}

void tdl_wake_set_spin(struct tdl_wake *w, uint64_t spin_ns)
{
    w->spin_ns = spin_ns;
}

bool tdl_wake_watch(struct tdl_wake *w, uint64_t watch_ns)
{
    TDL_ASSERT(tdl_load_relaxed_u32(&w->state) != TDL_WAKE_AWAKE);
    if (watch_ns == 0) {
        return tdl_load_acquire_u32(&w->state) != TDL_WAKE_WAITING;
    }
    return wake_spin_until(w, tdl_clock_ns() + watch_ns);
}

bool tdl_wake_spin(struct tdl_wake *w)
{
    return tdl_wake_watch(w, w->spin_ns);
}

/* Named, so that a stack trace says what the thread does. */
__attribute__((noinline)) static int wake_sleep(struct tdl_wake *w, const struct timespec *timeout)
{
    struct pollfd pfd = {w->fd, POLLIN, 0};
    int n = TDL_SYSCALL(EINTR, ppoll(&pfd, 1, timeout, NULL));

    if (n < 0) {
        return -errno;
    }
    if (n == 0) {
        return TDL_ETIMEDOUT;
    }
    return (pfd.revents & POLLNVAL) != 0 ? TDL_EBADF : TDL_OK;
}

int tdl_wake_wait(struct tdl_wake *w, uint64_t timeout_ns)
{
    struct timespec timeout;

    TDL_ASSERT(!w->edge);
    if (timeout_ns == UINT64_MAX) {
        if (tdl_wake_spin(w)) {
            return TDL_OK;
        }
        return wake_sleep(w, NULL);
    }
    if (w->spin_ns > 0 && timeout_ns > 0) {
        uint64_t begin_ns = tdl_clock_ns();
        uint64_t spin_ns = w->spin_ns < timeout_ns ? w->spin_ns : timeout_ns;
        if (wake_spin_until(w, begin_ns + spin_ns)) {
            return TDL_OK;
        }
        uint64_t spent_ns = tdl_clock_ns() - begin_ns;
        timeout_ns = spent_ns < timeout_ns ? timeout_ns - spent_ns : 0;
    } else if (tdl_load_acquire_u32(&w->state) != TDL_WAKE_WAITING) {
        return TDL_OK;
    }
    timeout = tdl_clock_timespec(timeout_ns);
    return wake_sleep(w, &timeout);
}

/* The counter cannot be full, since each park adds at most one and it holds 2^64. What else fails is
 * interrupted and tried again, a few times: a program may have closed the number behind our back. */
static void wake_write(struct tdl_wake *w)
{
    const uint64_t one = 1;
    int saved_errno = errno;
    ssize_t put = -1;

    for (int tries = 0; put < 0 && tries < WAKE_TRIES; tries++) {
        put = write(w->fd, &one, sizeof one);
    }
    errno = saved_errno;
}

void tdl_wake_notify(struct tdl_wake *w)
{
    uint32_t state = tdl_load_seq_u32(&w->state); /* MO-1, notifier: after the producer's store of work */

    for (;;) {
        if (state == TDL_WAKE_WAITING) {
            if (tdl_cas_seq_u32(&w->state, &state, TDL_WAKE_NOTIFIED)) { /* MO-2 */
                wake_write(w);
                return;
            }
        } else if (state == TDL_WAKE_SPINNING) {
            if (tdl_cas_seq_u32(&w->state, &state, TDL_WAKE_SIGNALED)) { /* MO-2 */
                return;
            }
        } else {
            return;
        }
    }
}

int tdl_wake_after_fork(struct tdl_wake *w)
{
    tdl_wake_close(w);
    tdl_atomic_init_u32(&w->state, TDL_WAKE_AWAKE);
    w->owed = 0;
    return wake_open_fd(w);
}

/* Goal: the wake makes good what the kernel may answer at any call: an interrupted read, write or poll, a
 * refused eventfd. Method: the linker puts these functions before libc's; the k-th call of each fails, for
 * every k until none is reached. */
#include "suite.h"
#include "wake_scenario.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum call { EVENTFD, READ, WRITE, PPOLL, CALLS };

static struct {
    bool on;
    enum call call;
    unsigned nth, seen[CALLS];
    int error;
} fault;

static bool fails(enum call call)
{
    if (!fault.on) {
        return false;
    }
    fault.seen[call]++;
    if (call != fault.call || fault.seen[call] != fault.nth) {
        return false;
    }
    errno = fault.error;
    return true;
}

int __real_eventfd(unsigned value, int flags);
ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __real_write(int fd, const void *bytes, size_t size);
int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
int __wrap_eventfd(unsigned value, int flags);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);

int __wrap_eventfd(unsigned value, int flags)
{
    return fails(EVENTFD) ? -1 : __real_eventfd(value, flags);
}

ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    return fails(READ) ? -1 : __real_read(fd, bytes, size);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    return fails(WRITE) ? -1 : __real_write(fd, bytes, size);
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    return fails(PPOLL) ? -1 : __real_ppoll(fds, count, timeout, mask);
}

/* Runs the scenario with the k-th call failing, for every k; `expected` is what each of those runs
 * returns. */
static unsigned fail_each(enum call call, int error, int expected)
{
    unsigned descriptors = scenario_open_descriptors();

    for (unsigned k = 1;; k++) {
        memset(&fault, 0, sizeof fault);
        fault.call = call;
        fault.error = error;
        fault.nth = k;
        fault.on = true;
        int rc = scenario();
        fault.on = false;
        ck_assert_uint_eq(scenario_open_descriptors(), descriptors);
        if (fault.seen[call] < k) {
            ck_assert_int_eq(rc, 0);
            ck_assert_int_eq(scenario_ran, 2 * SCENARIO_ITEMS);
            return k - 1;
        }
        ck_assert_int_eq(rc, expected);
    }
}

START_TEST(an_interrupted_write_is_made_again)
{
    /* One write for each of the two parks. */
    ck_assert_uint_eq(fail_each(WRITE, EINTR, 0), 2);
}
END_TEST

START_TEST(an_interrupted_read_is_made_again)
{
    ck_assert_uint_eq(fail_each(READ, EINTR, 0), 2);
}
END_TEST

START_TEST(a_read_that_finds_nothing_is_made_up_for_later)
{
    ck_assert_uint_eq(fail_each(READ, EAGAIN, 0), 2);
}
END_TEST

START_TEST(an_interrupted_poll_is_the_callers_to_repeat)
{
    /* The word says it first, so the poll may not be reached at all. */
    (void)fail_each(PPOLL, EINTR, 0);
}
END_TEST

START_TEST(a_refused_eventfd_is_reported_and_leaves_the_wake_closed)
{
    ck_assert_uint_eq(fail_each(EVENTFD, EMFILE, TDL_EMFILE), 2);
    ck_assert_uint_eq(fail_each(EVENTFD, ENOMEM, TDL_ENOMEM), 2);
}
END_TEST

SUITE("fault/wrap_wake", an_interrupted_write_is_made_again, an_interrupted_read_is_made_again,
      a_read_that_finds_nothing_is_made_up_for_later, an_interrupted_poll_is_the_callers_to_repeat,
      a_refused_eventfd_is_reported_and_leaves_the_wake_closed)

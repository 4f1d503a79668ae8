/* Goal: the word and the descriptor agree in every sequence of park and notify one thread can make, and a
 * notify that is under way while the park ends costs nothing but a spurious wake. Method: step by step on
 * one thread; poll says whether the descriptor is readable. */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "treadle/status.h"
#include "treadle/wake.h"

static struct tdl_wake wake;

static void setup(uint64_t spin_ns)
{
    struct tdl_wake_options options = {.spin_ns = spin_ns};
    ck_assert_int_eq(tdl_wake_open(&wake, &options), 0);
}

static bool readable(void)
{
    struct pollfd pfd = {tdl_wake_fd(&wake), POLLIN, 0};
    return poll(&pfd, 1, 0) == 1;
}

START_TEST(the_descriptor_is_nonblocking_and_not_inherited_by_exec)
{
    ck_assert_int_eq(tdl_wake_open(&wake, NULL), 0);
    int fd = tdl_wake_fd(&wake);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_ne(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    tdl_wake_close(&wake);
    ck_assert_int_eq(tdl_wake_fd(&wake), -1);
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(a_notify_while_the_owner_is_awake_writes_nothing)
{
    setup(0);
    tdl_wake_notify(&wake);
    ck_assert(!readable());
    ck_assert(!tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(a_notify_after_park_begin_wakes_at_once_and_park_end_takes_it_back)
{
    setup(0);
    for (int i = 0; i < 3; i++) {
        tdl_wake_park_begin(&wake);
        tdl_wake_notify(&wake);
        ck_assert(readable());
        ck_assert_int_eq(tdl_wake_wait(&wake, UINT64_MAX), 0);
        ck_assert(tdl_wake_park_end(&wake));
        ck_assert(!readable());
    }
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(many_notifies_write_once_per_park)
{
    setup(0);
    tdl_wake_park_begin(&wake);
    for (int i = 0; i < 5; i++) {
        tdl_wake_notify(&wake);
    }
    uint64_t count = 0;
    ck_assert_int_eq((int)read(tdl_wake_fd(&wake), &count, sizeof count), 8);
    ck_assert_uint_eq(count, 1);
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(a_park_without_notify_ends_untouched)
{
    setup(0);
    tdl_wake_park_begin(&wake);
    ck_assert_int_eq(tdl_wake_wait(&wake, 1000), TDL_ETIMEDOUT);
    ck_assert_int_eq(tdl_wake_wait(&wake, 0), TDL_ETIMEDOUT);
    ck_assert(!tdl_wake_park_end(&wake));
    ck_assert(!readable());
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(a_write_that_comes_after_park_end_is_read_by_a_later_park)
{
    const uint64_t one = 1;
    setup(0);
    /* The notifier has moved the word and not yet written. */
    tdl_wake_park_begin(&wake);
    tdl_store_seq_u32(&wake.state, TDL_WAKE_NOTIFIED);
    ck_assert(tdl_wake_park_end(&wake));
    ck_assert_int_eq((int)write(tdl_wake_fd(&wake), &one, sizeof one), 8);
    /* The next park wakes for nothing, once. */
    tdl_wake_park_begin(&wake);
    ck_assert_int_eq(tdl_wake_wait(&wake, UINT64_MAX), 0);
    ck_assert(!tdl_wake_park_end(&wake));
    ck_assert(!readable());
    tdl_wake_park_begin(&wake);
    ck_assert_int_eq(tdl_wake_wait(&wake, 0), TDL_ETIMEDOUT);
    ck_assert(!tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(writes_of_two_parks_that_come_together_are_both_taken_back)
{
    const uint64_t one = 1;
    setup(0);
    tdl_wake_park_begin(&wake);
    tdl_store_seq_u32(&wake.state, TDL_WAKE_NOTIFIED);
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_park_begin(&wake);
    tdl_wake_notify(&wake);
    ck_assert_int_eq((int)write(tdl_wake_fd(&wake), &one, sizeof one), 8);
    ck_assert(tdl_wake_park_end(&wake));
    ck_assert(!readable());
    ck_assert_uint_eq(wake.owed, 0);
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(an_edge_triggered_owner_is_told_of_each_write_and_reads_none_back)
{
    const struct tdl_wake_options options = {.edge = true};
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    ck_assert_int_eq(tdl_wake_open(&wake, &options), 0);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    ck_assert_int_eq(epoll_ctl(epoll, EPOLL_CTL_ADD, tdl_wake_fd(&wake), &event), 0);
    for (int i = 0; i < 3; i++) {
        tdl_wake_park_begin(&wake);
        ck_assert_int_eq(epoll_wait(epoll, &event, 1, 0), 0);
        tdl_wake_notify(&wake);
        ck_assert_int_eq(epoll_wait(epoll, &event, 1, -1), 1);
        ck_assert(tdl_wake_park_end(&wake));
        ck_assert_uint_eq(wake.owed, 0);
    }
    ck_assert(readable());
    close(epoll);
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(spinning_gives_up_after_its_time_and_then_sleeps)
{
    setup(1000);
    tdl_wake_park_begin(&wake);
    ck_assert(!tdl_wake_spin(&wake));
    ck_assert_uint_eq(tdl_load_relaxed_u32(&wake.state), TDL_WAKE_WAITING);
    ck_assert_int_eq(tdl_wake_wait(&wake, 10000), TDL_ETIMEDOUT);
    tdl_wake_notify(&wake);
    ck_assert(tdl_wake_spin(&wake));
    ck_assert_int_eq(tdl_wake_wait(&wake, UINT64_MAX), 0);
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(the_time_of_spinning_can_be_set_on_an_open_wake)
{
    setup(0);
    tdl_wake_set_spin(&wake, 1000);
    tdl_wake_park_begin(&wake);
    ck_assert(!tdl_wake_spin(&wake));
    tdl_wake_notify(&wake);
    ck_assert(tdl_wake_spin(&wake));
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_set_spin(&wake, 0);
    ck_assert_uint_eq(wake.spin_ns, 0);
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(a_watch_has_a_time_of_its_own)
{
    setup(0);
    tdl_wake_park_begin(&wake);
    ck_assert(!tdl_wake_watch(&wake, 0));
    ck_assert(!tdl_wake_watch(&wake, 1000));
    ck_assert_uint_eq(tdl_load_relaxed_u32(&wake.state), TDL_WAKE_WAITING);
    tdl_wake_notify(&wake);
    ck_assert(tdl_wake_watch(&wake, 0));
    ck_assert(tdl_wake_watch(&wake, UINT64_C(1000000000000)));
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(a_notify_while_spinning_writes_nothing)
{
    setup(1000);
    tdl_wake_park_begin(&wake);
    tdl_store_seq_u32(&wake.state, TDL_WAKE_SPINNING);
    tdl_wake_notify(&wake);
    ck_assert(!readable());
    ck_assert_uint_eq(tdl_load_relaxed_u32(&wake.state), TDL_WAKE_SIGNALED);
    ck_assert(tdl_wake_park_end(&wake));
    ck_assert_uint_eq(wake.owed, 0);
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(notify_keeps_errno)
{
    setup(0);
    tdl_wake_park_begin(&wake);
    errno = EDOM;
    tdl_wake_notify(&wake);
    ck_assert_int_eq(errno, EDOM);
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

static void notify_from_handler(int signum)
{
    (void)signum;
    tdl_wake_notify(&wake);
}

START_TEST(a_signal_handler_may_notify_the_thread_it_interrupts)
{
    setup(0);
    struct sigaction action = {.sa_handler = notify_from_handler};
    ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
    tdl_wake_park_begin(&wake);
    ck_assert_int_eq(raise(SIGUSR1), 0);
    ck_assert_int_eq(tdl_wake_wait(&wake, UINT64_MAX), 0);
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

static void ignore_signal(int signum)
{
    (void)signum;
}

START_TEST(a_signal_ends_the_wait_with_eintr_and_the_park_goes_on)
{
    setup(0);
    struct sigaction action = {.sa_handler = ignore_signal};
    /* It repeats, so that one that comes before the wait does not leave it asleep. */
    struct itimerval soon = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    tdl_wake_park_begin(&wake);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &soon, NULL), 0);
    int rc = tdl_wake_wait(&wake, UINT64_MAX);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    ck_assert_int_eq(rc, TDL_EINTR);
    tdl_wake_notify(&wake);
    ck_assert_int_eq(tdl_wake_wait(&wake, UINT64_MAX), 0);
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(the_child_of_a_fork_has_a_descriptor_of_its_own)
{
    int status = -1;
    setup(0);
    tdl_wake_park_begin(&wake);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        bool ok = tdl_wake_after_fork(&wake) == 0 && !readable();
        tdl_wake_park_begin(&wake);
        tdl_wake_notify(&wake);
        ok = ok && tdl_wake_wait(&wake, UINT64_MAX) == 0 && tdl_wake_park_end(&wake);
        /* A second one that is left unread would show up in the parent if the descriptor were shared. */
        tdl_wake_park_begin(&wake);
        tdl_wake_notify(&wake);
        _exit(ok ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert(!readable());
    ck_assert(!tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(a_wake_of_zeros_is_closed_and_zero_is_not_its_descriptor)
{
    struct stat before, after;
    struct tdl_wake zeros;
    memset(&zeros, 0, sizeof zeros);
    ck_assert_int_eq(fstat(0, &before), 0);
    ck_assert_int_eq(tdl_wake_fd(&zeros), -1);
    tdl_wake_close(&zeros);
    tdl_wake_close(&zeros);
    ck_assert_int_eq(fstat(0, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
}
END_TEST

START_TEST(a_descriptor_that_somebody_closed_costs_a_code)
{
    ck_assert_int_eq(tdl_wake_open(&wake, NULL), 0);
    close(tdl_wake_fd(&wake));
    tdl_wake_park_begin(&wake);
    ck_assert_int_eq(tdl_wake_wait(&wake, UINT64_MAX), TDL_EBADF);
    tdl_wake_notify(&wake);
    ck_assert(tdl_wake_park_end(&wake));
    tdl_wake_close(&wake);
}
END_TEST

SUITE("wake/wake", a_wake_of_zeros_is_closed_and_zero_is_not_its_descriptor,
      a_descriptor_that_somebody_closed_costs_a_code, the_descriptor_is_nonblocking_and_not_inherited_by_exec,
      a_notify_while_the_owner_is_awake_writes_nothing,
      a_notify_after_park_begin_wakes_at_once_and_park_end_takes_it_back, many_notifies_write_once_per_park,
      a_park_without_notify_ends_untouched, a_write_that_comes_after_park_end_is_read_by_a_later_park,
      writes_of_two_parks_that_come_together_are_both_taken_back,
      an_edge_triggered_owner_is_told_of_each_write_and_reads_none_back,
      spinning_gives_up_after_its_time_and_then_sleeps, the_time_of_spinning_can_be_set_on_an_open_wake,
      a_watch_has_a_time_of_its_own, a_notify_while_spinning_writes_nothing, notify_keeps_errno,
      a_signal_handler_may_notify_the_thread_it_interrupts,
      a_signal_ends_the_wait_with_eintr_and_the_park_goes_on, the_child_of_a_fork_has_a_descriptor_of_its_own)

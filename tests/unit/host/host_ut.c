/* Goal: the host runs what is posted, what is due and what is readable, and nothing that was ended.
 * Method: real threads, pipes and clocks; what the kernel may refuse is refused by failpoints and by a
 * filter. */
#include "refuse.h"
#include "suite.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "treadle/clock.h"
#include "treadle/failpoint.h"
#include "treadle/host.h"
#include "treadle/status.h"

/* Room for the watch to stay where it is, since the host keeps its address. */
struct probe {
    struct tdl_epoll_watch watch;
    struct tdl_epoll_host *host;
    int ends[2];
    int ran;
    int stop_after;
};

static struct tdl_epoll_host host;

static void open_host(void)
{
    ck_assert_int_eq(tdl_epoll_host_open(&host, NULL), 0);
}

static void stop(struct tdl_item *item)
{
    (void)item;
    tdl_sched_stop(&host.sched);
}

static void count(struct tdl_item *item)
{
    struct probe *probe = TDL_CONTAINER_OF(item, struct probe, watch.item);
    if (++probe->ran == probe->stop_after) {
        tdl_sched_stop(&probe->host->sched);
    }
}

static void open_probe(struct probe *probe, int stop_after)
{
    *probe = (struct probe){.host = &host, .stop_after = stop_after};
    ck_assert_int_eq(pipe(probe->ends), 0);
    tdl_item_init(&probe->watch.item, count);
}

static void close_probe(struct probe *probe)
{
    close(probe->ends[0]);
    close(probe->ends[1]);
}

/* One turn that does not wait. */
static void look(void)
{
    struct tdl_item now;
    tdl_item_init(&now, stop);
    tdl_sched_push(&host.sched, &now);
    tdl_epoll_host_run(&host);
}

static void *post_from_elsewhere(void *arg)
{
    ck_assert_int_eq(tdl_epoll_host_post(&host, arg), 0);
    return NULL;
}

static void run_until_posted(void)
{
    struct tdl_item item;
    pthread_t thread;
    tdl_item_init(&item, stop);
    ck_assert_int_eq(pthread_create(&thread, NULL, post_from_elsewhere, &item), 0);
    tdl_epoll_host_run(&host);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(a_post_ends_a_sleep_with_and_without_descriptors)
{
    struct probe probe;
    open_host();
    run_until_posted();
    open_probe(&probe, 0);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), 0);
    run_until_posted();
    ck_assert_int_eq(probe.ran, 0);
    tdl_epoll_host_close(&host);
    close_probe(&probe);
}
END_TEST

START_TEST(a_readable_descriptor_runs_its_item_in_each_turn_until_it_is_read)
{
    struct probe probe;
    char byte;
    open_host();
    open_probe(&probe, 3);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), 0);
    ck_assert_int_eq(write(probe.ends[1], "x", 1), 1);
    tdl_epoll_host_run(&host);
    ck_assert_int_eq(probe.ran, 3);
    ck_assert_uint_eq(probe.watch.ready, EPOLLIN);
    ck_assert_int_eq(read(probe.ends[0], &byte, 1), 1);
    look();
    ck_assert_int_eq(probe.ran, 3);
    tdl_epoll_host_close(&host);
    close_probe(&probe);
}
END_TEST

START_TEST(a_watch_for_nothing_is_a_pause)
{
    struct probe probe;
    open_host();
    open_probe(&probe, 1);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), 0);
    ck_assert_int_eq(write(probe.ends[1], "x", 1), 1);
    ck_assert_int_eq(tdl_epoll_host_rewatch(&host, &probe.watch, 0), 0);
    look();
    ck_assert_int_eq(probe.ran, 0);
    ck_assert_int_eq(tdl_epoll_host_rewatch(&host, &probe.watch, EPOLLIN), 0);
    tdl_epoll_host_run(&host);
    ck_assert_int_eq(probe.ran, 1);
    tdl_epoll_host_close(&host);
    close_probe(&probe);
}
END_TEST

static struct probe first, second;

static void end_the_other(struct tdl_item *item)
{
    (void)item;
    first.ran++;
    tdl_epoll_host_unwatch(&host, &second.watch);
    tdl_epoll_host_unwatch(&host, &first.watch);
}

START_TEST(what_was_queued_when_its_watch_ended_does_not_run)
{
    open_host();
    open_probe(&first, 0);
    open_probe(&second, 0);
    tdl_item_init(&first.watch.item, end_the_other);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &first.watch, first.ends[0], EPOLLIN), 0);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &second.watch, second.ends[0], EPOLLIN), 0);
    ck_assert_int_eq(write(first.ends[1], "x", 1), 1);
    ck_assert_int_eq(write(second.ends[1], "x", 1), 1);
    look();
    look();
    ck_assert_int_eq(first.ran, 1);
    ck_assert_int_eq(second.ran, 0);
    tdl_epoll_host_close(&host);
    close_probe(&first);
    close_probe(&second);
}
END_TEST

static void run_a_timer(void)
{
    struct tdl_timer timer;
    uint64_t due_ns = tdl_clock_ns() + TDL_NS_PER_MS / 2;
    tdl_timer_init(&timer, stop);
    ck_assert_int_eq(tdl_timer_arm(&host.sched, &timer, due_ns), 0);
    tdl_epoll_host_run(&host);
    ck_assert_uint_ge(tdl_clock_ns(), due_ns);
}

START_TEST(a_timer_is_not_early)
{
    struct probe probe;
    open_host();
    run_a_timer();
    open_probe(&probe, 0);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), 0);
    run_a_timer();
    tdl_epoll_host_close(&host);
    close_probe(&probe);
}
END_TEST

START_TEST(a_closed_host_takes_no_post)
{
    struct tdl_item item;
    open_host();
    tdl_epoll_host_close(&host);
    tdl_item_init(&item, stop);
    ck_assert_int_eq(tdl_epoll_host_post(&host, &item), TDL_ECLOSED);
}
END_TEST

START_TEST(what_the_kernel_refuses_leaves_nothing_watched)
{
    struct probe probe;
    open_host();
    open_probe(&probe, 1);
#ifdef TDL_FAILPOINTS
    for (uint64_t nth = 1; nth <= 3; nth++) { /* the epoll, the wake in it, the descriptor in it */
        tdl_failpoint_set(TDL_FAIL_SYSCALL, nth);
        ck_assert_int_lt(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), 0);
        tdl_failpoint_set(TDL_FAIL_SYSCALL, 0);
        ck_assert_int_eq(host.epoll >= 0, nth == 3);
    }
    ck_assert_int_eq(write(probe.ends[1], "x", 1), 1);
    look();
    ck_assert_int_eq(probe.ran, 0);
#endif
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, -1, EPOLLIN), -EBADF);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), 0);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), -EEXIST);
    tdl_epoll_host_close(&host);
    close_probe(&probe);
}
END_TEST

/* The last case, since the filter stays where check does not fork. */
START_TEST(an_old_kernel_waits_in_whole_milliseconds_and_not_shorter)
{
    struct probe probe;
    if (!refuse_calls(ENOSYS, SYS_epoll_pwait2, SYS_epoll_pwait2, SYS_epoll_pwait2)) {
        return;
    }
    open_host();
    open_probe(&probe, 1);
    ck_assert_int_eq(tdl_epoll_host_watch(&host, &probe.watch, probe.ends[0], EPOLLIN), 0);
    run_a_timer();
    run_until_posted();
    ck_assert_int_eq(write(probe.ends[1], "x", 1), 1);
    tdl_epoll_host_run(&host);
    ck_assert_int_eq(probe.ran, 1);
    tdl_epoll_host_close(&host);
    close_probe(&probe);
}
END_TEST

SUITE("host/host", a_post_ends_a_sleep_with_and_without_descriptors,
      a_readable_descriptor_runs_its_item_in_each_turn_until_it_is_read, a_watch_for_nothing_is_a_pause,
      what_was_queued_when_its_watch_ended_does_not_run, a_timer_is_not_early, a_closed_host_takes_no_post,
      what_the_kernel_refuses_leaves_nothing_watched,
      an_old_kernel_waits_in_whole_milliseconds_and_not_shorter)

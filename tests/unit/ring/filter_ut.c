/* Goal: a poll is left out while nothing became ready, and never when something did; what refuses the ring
 * makes every turn poll. Method: an epoll with a pipe in it, and each state of the filter in turn. */
#include "refuse.h"
#include "suite.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "treadle/failpoint.h"
#include "treadle/filter.h"

static int epoll;
static int ends[2];

static void setup(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    epoll = epoll_create1(0);
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), 0);
}

static void teardown(void)
{
    close(epoll);
    close(ends[0]);
    close(ends[1]);
}

/* A turn that does not wait: whether the poll was left out, else what it found. */
enum turn { SKIPPED, EMPTY, FOUND };

static enum turn take_turn(struct tdl_filter *f)
{
    struct epoll_event event;
    if (tdl_filter_skips(f, epoll)) {
        return SKIPPED;
    }
    tdl_filter_before_poll(f);
    bool found = epoll_wait(epoll, &event, 1, 0) == 1;
    tdl_filter_polled(f, found);
    return found ? FOUND : EMPTY;
}

/* Empty turns until one is skipped; false on a machine without rings. */
static bool arm(struct tdl_filter *f)
{
    for (int turn = 0; turn < 100; turn++) {
        if (take_turn(f) == SKIPPED) {
            ck_assert_int_eq(f->state, TDL_FILTER_ARMED);
            return true;
        }
    }
    ck_assert_int_eq(f->state, TDL_FILTER_REFUSED);
    return false;
}

static void read_byte(void)
{
    char byte;
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
}

START_TEST(a_few_empty_polls_come_before_the_first_that_is_left_out)
{
    struct tdl_filter f;
    setup();
    tdl_filter_init(&f, false);
    ck_assert_str_eq(tdl_filter_name(&f), "io_uring");
    for (int turn = 0; turn < 4; turn++) {
        ck_assert_int_eq(take_turn(&f), EMPTY);
        ck_assert_int_eq(f.state, TDL_FILTER_NEW);
    }
    if (arm(&f)) {
        ck_assert_int_eq(take_turn(&f), SKIPPED);
    }
    tdl_filter_close(&f);
    teardown();
}
END_TEST

START_TEST(what_becomes_ready_is_found_by_the_next_turn)
{
    struct tdl_filter f;
    setup();
    tdl_filter_init(&f, false);
    for (int round = 0; arm(&f) && round < 50; round++) {
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
        ck_assert_int_eq(take_turn(&f), FOUND);
        read_byte();
        ck_assert_int_ne(take_turn(&f),
                         FOUND); /* one empty poll more where the completion came behind the poll */
    }
    tdl_filter_close(&f);
    teardown();
}
END_TEST

START_TEST(what_is_ready_when_it_is_armed_is_found)
{
    struct tdl_filter f;
    setup();
    tdl_filter_init(&f, false);
    if (arm(&f)) {
        tdl_filter_disarm(&f);
        ck_assert_int_eq(f.state, TDL_FILTER_IDLE);
        for (int turn = 0; turn < 4; turn++) {
            ck_assert_int_eq(take_turn(&f), EMPTY);
        }
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
        ck_assert_int_eq(take_turn(&f), FOUND);
        ck_assert_int_eq(f.state, TDL_FILTER_ARMED);
    }
    tdl_filter_close(&f);
    teardown();
}
END_TEST

START_TEST(what_comes_behind_the_poll_is_not_taken_for_found)
{
    struct tdl_filter f;
    struct epoll_event event;
    setup();
    tdl_filter_init(&f, false);
    if (arm(&f)) {
        tdl_filter_before_poll(&f);
        ck_assert_int_eq(epoll_wait(epoll, &event, 1, 0), 0);
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
        tdl_filter_polled(&f, false);
        ck_assert_int_eq(take_turn(&f), FOUND);
    }
    tdl_filter_close(&f);
    teardown();
}
END_TEST

START_TEST(more_events_than_the_ring_holds_are_found)
{
    struct tdl_filter f;
    setup();
    tdl_filter_init(&f, false);
    if (arm(&f)) {
        for (int i = 0; i < 200; i++) {
            ck_assert_int_eq(write(ends[1], "x", 1), 1);
            read_byte();
        }
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
        ck_assert_int_eq(take_turn(&f), FOUND);
        read_byte();
        ck_assert(arm(&f));
    }
    tdl_filter_close(&f);
    teardown();
}
END_TEST

START_TEST(one_that_is_off_has_no_ring_and_skips_nothing)
{
    struct tdl_filter f;
    setup();
    tdl_filter_init(&f, true);
    ck_assert_str_eq(tdl_filter_name(&f), "off");
    for (int turn = 0; turn < 20; turn++) {
        ck_assert_int_eq(take_turn(&f), EMPTY);
    }
    tdl_filter_disarm(&f);
    tdl_filter_close(&f);
    ck_assert_int_eq(f.state, TDL_FILTER_OFF);
    ck_assert_int_eq(f.ring.fd, -1);
    teardown();
}
END_TEST

START_TEST(whatever_call_fails_every_turn_polls_from_then_on)
{
    setup();
#ifdef TDL_FAILPOINTS
    for (uint64_t nth = 1; nth < 4; nth++) { /* the set-up, the arming, the disarming */
        struct tdl_filter f;
        tdl_filter_init(&f, false);
        tdl_failpoint_set(TDL_FAIL_SYSCALL, nth);
        if (arm(&f)) {
            tdl_filter_disarm(&f);
        }
        tdl_failpoint_set(TDL_FAIL_SYSCALL, 0);
        ck_assert_str_eq(tdl_filter_name(&f), "refused");
        ck_assert_int_ne(f.error, 0);
        ck_assert_int_eq(f.ring.fd, -1);
        for (int turn = 0; turn < 20; turn++) {
            ck_assert_int_eq(take_turn(&f), EMPTY);
        }
        tdl_filter_close(&f);
        ck_assert_int_eq(f.state, TDL_FILTER_REFUSED);
    }
#endif
    teardown();
}
END_TEST

/* With the filter armed, or disarmed but with its ring. */
static void expect_child_begins_anew(struct tdl_filter *f)
{
    pid_t child = fork();
    if (child == 0) {
        if (take_turn(f) != EMPTY || f->state != TDL_FILTER_NEW || f->ring.fd != -1) {
            _exit(1);
        }
        for (int turn = 0; turn < 100 && take_turn(f) != SKIPPED; turn++) {
        }
        _exit(f->state == TDL_FILTER_ARMED ? 7 : 2);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 7);
}

START_TEST(a_child_has_a_filter_of_its_own)
{
    struct tdl_filter f;
    setup();
    tdl_filter_init(&f, false);
    if (arm(&f)) {
        expect_child_begins_anew(&f);
        ck_assert_int_eq(take_turn(&f), SKIPPED);
        tdl_filter_disarm(&f);
        expect_child_begins_anew(&f);
        (void)arm(&f);
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
        ck_assert_int_eq(take_turn(&f), FOUND);
    }
    tdl_filter_close(&f);
    teardown();
}
END_TEST

/* The last case, since what is refused stays refused where check does not fork. */
START_TEST(a_machine_without_rings_polls_every_turn)
{
    struct tdl_filter f;
    if (!refuse_calls(EPERM, SYS_io_uring_setup, SYS_io_uring_setup, SYS_io_uring_setup)) {
        return;
    }
    setup();
    tdl_filter_init(&f, false);
    for (int turn = 0; turn < 20; turn++) {
        ck_assert_int_eq(take_turn(&f), EMPTY);
    }
    ck_assert_int_eq(f.state, TDL_FILTER_REFUSED);
    ck_assert_int_eq(f.error, EPERM);
    tdl_filter_close(&f);
    teardown();
}
END_TEST

SUITE("ring/filter", a_few_empty_polls_come_before_the_first_that_is_left_out,
      what_becomes_ready_is_found_by_the_next_turn, what_is_ready_when_it_is_armed_is_found,
      what_comes_behind_the_poll_is_not_taken_for_found, more_events_than_the_ring_holds_are_found,
      one_that_is_off_has_no_ring_and_skips_nothing, whatever_call_fails_every_turn_polls_from_then_on,
      a_child_has_a_filter_of_its_own, a_machine_without_rings_polls_every_turn)

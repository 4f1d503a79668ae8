/* Goal: a gate that says quiet has told of every event before.
 * Method: an epoll with one eventfd, and events before, within and behind each step of a turn. Where the kernel refuses the ring,
 * every turn polls, and there is nothing to be told. */
#include "poll/gate.h"
#include "suite.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct tdl_gate gate;
static int epoll_fd, event_fd;

static void setup(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    tdl__gate_init(&gate, false);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_eq(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &event), 0);
}

static void teardown(void)
{
    tdl__gate_close(&gate);
    (void)close(event_fd);
    (void)close(epoll_fd);
}

static bool look(void)
{
    struct epoll_event event;
    int count = epoll_wait(epoll_fd, &event, 1, 0);
    ck_assert_int_ge(count, 0);
    return count > 0;
}

static void happen(void)
{
    ck_assert_int_eq(eventfd_write(event_fd, 1), 0);
}

static void answer(void)
{
    eventfd_t value;
    ck_assert_int_eq(eventfd_read(event_fd, &value), 0);
}

static bool poll_once(void)
{
    tdl__gate_before_poll(&gate);
    bool handled = look();
    tdl__gate_polled(&gate, handled);
    return handled;
}

/* Turns without an event until the gate is quiet; false where it never will be. */
static bool become_quiet(void)
{
    for (int turns = 0; turns < 20; turns++) {
        if (tdl__gate_quiet(&gate, epoll_fd)) {
            return true;
        }
        ck_assert(!poll_once());
    }
    ck_assert(gate.state == TDL_GATE_REFUSED);
    return false;
}

START_TEST(an_event_ends_the_quiet)
{
    setup();
    for (int i = 0; i < 10 && become_quiet(); i++) {
        happen();
        ck_assert(!tdl__gate_quiet(&gate, epoll_fd));
        ck_assert(poll_once());
        answer();
    }
    teardown();
}
END_TEST

START_TEST(an_event_behind_the_look_of_a_poll_ends_the_quiet)
{
    setup();
    for (int i = 0; i < 10 && become_quiet(); i++) {
        tdl__gate_before_poll(&gate);
        ck_assert(!look());
        happen();
        tdl__gate_polled(&gate, false);
        ck_assert(!tdl__gate_quiet(&gate, epoll_fd));
        ck_assert(poll_once());
        answer();
    }
    teardown();
}
END_TEST

START_TEST(an_event_while_the_gate_is_armed_is_found)
{
    setup();
    for (int i = 0; i < 10; i++) {
        while (gate.state != TDL_GATE_ARMED && gate.state != TDL_GATE_REFUSED) {
            if (!tdl__gate_quiet(&gate, epoll_fd) && gate.state != TDL_GATE_ARMED) {
                ck_assert(!poll_once());
            }
        }
        happen();
        ck_assert(poll_once());
        answer();
        tdl__gate_disarm(&gate);
    }
    teardown();
}
END_TEST

START_TEST(more_events_than_the_ring_holds_end_the_quiet)
{
    setup();
    if (become_quiet()) {
        for (int i = 0; i < 200; i++) {
            happen();
            answer();
        }
        happen();
        ck_assert(!tdl__gate_quiet(&gate, epoll_fd));
        ck_assert(poll_once());
        answer();
        (void)become_quiet();
    }
    teardown();
}
END_TEST

SUITE("pyloop/gate", an_event_ends_the_quiet, an_event_behind_the_look_of_a_poll_ends_the_quiet,
      an_event_while_the_gate_is_armed_is_found, more_events_than_the_ring_holds_end_the_quiet)

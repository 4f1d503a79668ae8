/* Goal: one turn does its steps in order, asks the host for no more than it needs, and stops in the turn
 * that asked. Method: a host that writes down each call. */
#include "suite.h"
#include "trace.h"

#include "treadle/turn.h"

struct fake_host {
    struct tdl_host host;
    uint64_t now;
    uint64_t timeout;
    int clock_reads;
    struct tdl_queue io;
    struct tdl_queue remote;
    struct traced *posted_while_polling;
};

static struct tdl_sched sched;
static struct fake_host fake;
static struct traced a, b, c, d;

static uint64_t fake_now(struct tdl_host *host)
{
    struct fake_host *self = TDL_CONTAINER_OF(host, struct fake_host, host);
    self->clock_reads++;
    return self->now;
}

static struct tdl_link *fake_take(struct tdl_host *host)
{
    trace_add('t');
    return tdl_queue_take(&TDL_CONTAINER_OF(host, struct fake_host, host)->remote);
}

static void fake_before_poll(struct tdl_host *host)
{
    (void)host;
    trace_add('f');
}

static void post(struct traced *t)
{
    t->item.link.mark = tdl_sched_mark(&sched);
    tdl_queue_push(&fake.remote, &t->item.link);
}

static void fake_poll(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io)
{
    struct fake_host *self = TDL_CONTAINER_OF(host, struct fake_host, host);
    trace_add('p');
    self->timeout = timeout_ns;
    if (timeout_ns != UINT64_MAX) {
        self->now += timeout_ns;
    }
    tdl_queue_splice(io, &self->io);
    if (self->posted_while_polling != NULL) {
        post(self->posted_while_polling);
    }
    self->posted_while_polling = NULL;
}

static void setup(void)
{
    struct tdl_host host = {fake_now, fake_take, fake_before_poll, fake_poll};
    tdl_sched_init(&sched);
    fake.host = host;
    fake.now = 1000;
    fake.timeout = 77;
    fake.clock_reads = 0;
    fake.posted_while_polling = NULL;
    tdl_queue_init(&fake.io);
    tdl_queue_init(&fake.remote);
    traced_init(&a, 'A', &sched);
    traced_init(&b, 'B', &sched);
    traced_init(&c, 'C', &sched);
    traced_init(&d, 'D', &sched);
    trace_reset();
}

START_TEST(a_turn_flushes_polls_takes_and_then_runs)
{
    setup();
    tdl_sched_push(&sched, &a.item);
    ck_assert_uint_eq(tdl_turn(&sched, &fake.host), 1);
    ck_assert_str_eq(trace_text, "fptA");
}
END_TEST

START_TEST(a_turn_with_something_ready_does_not_block_and_reads_no_clock)
{
    setup();
    tdl_sched_push(&sched, &a.item);
    (void)tdl_turn(&sched, &fake.host);
    ck_assert_uint_eq(fake.timeout, 0);
    ck_assert_int_eq(fake.clock_reads, 0);
}
END_TEST

START_TEST(a_turn_with_nothing_to_do_blocks_for_ever)
{
    setup();
    (void)tdl_turn(&sched, &fake.host);
    ck_assert_uint_eq(fake.timeout, UINT64_MAX);
    ck_assert_int_eq(fake.clock_reads, 0);
}
END_TEST

static void ring(struct tdl_item *item)
{
    (void)item;
    trace_add('T');
}

START_TEST(a_timer_bounds_the_wait_and_runs_in_the_turn_that_waited)
{
    setup();
    struct tdl_timer timer;
    tdl_timer_init(&timer, ring);
    ck_assert_int_eq(tdl_timer_arm(&sched, &timer, 1500), 0);
    ck_assert_uint_eq(tdl_turn(&sched, &fake.host), 1);
    ck_assert_uint_eq(fake.timeout, 500);
    ck_assert_str_eq(trace_text, "fptT");
}
END_TEST

START_TEST(a_stop_asked_for_before_the_turn_keeps_it_from_blocking)
{
    setup();
    tdl_sched_stop(&sched);
    (void)tdl_turn(&sched, &fake.host);
    ck_assert_uint_eq(fake.timeout, 0);
}
END_TEST

static void stop(struct traced *self)
{
    tdl_sched_stop(self->sched);
}

START_TEST(a_stop_takes_effect_in_the_turn_that_asked_also_when_it_came_from_another_thread)
{
    for (int is_remote = 0; is_remote < 2; is_remote++) {
        int turns = 0;
        setup();
        a.also = stop;
        a.then = &b;
        if (is_remote) {
            fake.posted_while_polling = &a;
        } else {
            tdl_sched_push(&sched, &a.item);
        }
        do {
            (void)tdl_turn(&sched, &fake.host);
            turns++;
        } while (!tdl_sched_stopping(&sched));
        ck_assert_int_eq(turns, 1);
        ck_assert_str_eq(trace_text, "fptA");
        tdl_sched_clear_stop(&sched);
        trace_reset();
        (void)tdl_turn(&sched, &fake.host);
        ck_assert_str_eq(trace_text, "fptB");
    }
}
END_TEST

START_TEST(io_items_go_behind_what_was_ready_and_timers_behind_them)
{
    setup();
    struct tdl_timer timer;
    tdl_timer_init(&timer, ring);
    ck_assert_int_eq(tdl_timer_arm(&sched, &timer, 900), 0);
    tdl_sched_push(&sched, &a.item);
    tdl_queue_push(&fake.io, &b.item.link);
    tdl_queue_push(&fake.io, &c.item.link);
    ck_assert_uint_eq(tdl_turn(&sched, &fake.host), 4);
    ck_assert_str_eq(trace_text, "fptABCT");
}
END_TEST

START_TEST(a_remote_item_posted_before_the_io_items_were_queued_runs_before_them)
{
    setup();
    tdl_sched_push(&sched, &a.item);
    post(&d);
    tdl_sched_push(&sched, &b.item);
    tdl_queue_push(&fake.io, &c.item.link);
    ck_assert_uint_eq(tdl_turn(&sched, &fake.host), 4);
    ck_assert_str_eq(trace_text, "fptADBC");
}
END_TEST

START_TEST(io_is_polled_once_per_generation)
{
    setup();
    a.then = &b;
    b.then = &a;
    tdl_sched_push(&sched, &a.item);
    for (int i = 0; i < 3; i++) {
        (void)tdl_turn(&sched, &fake.host);
    }
    ck_assert_str_eq(trace_text, "fptAfptBfptA");
}
END_TEST

SUITE("core/turn", a_turn_flushes_polls_takes_and_then_runs,
      a_turn_with_something_ready_does_not_block_and_reads_no_clock,
      a_turn_with_nothing_to_do_blocks_for_ever, a_timer_bounds_the_wait_and_runs_in_the_turn_that_waited,
      a_stop_asked_for_before_the_turn_keeps_it_from_blocking,
      a_stop_takes_effect_in_the_turn_that_asked_also_when_it_came_from_another_thread,
      io_items_go_behind_what_was_ready_and_timers_behind_them,
      a_remote_item_posted_before_the_io_items_were_queued_runs_before_them, io_is_polled_once_per_generation)

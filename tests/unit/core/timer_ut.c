/* Goal: timers expire in deadline order, equal ones in arming order, never early, and leave the heap at once
 * when disarmed. Method: a clock that is a number. */
#include "suite.h"
#include "trace.h"

#include "treadle/status.h"
#include "treadle/timer.h"

struct alarm_timer {
    struct tdl_timer timer;
    char name;
};

static struct tdl_sched sched;
static struct alarm_timer timers[26];

static void ring(struct tdl_item *item)
{
    trace_add(TDL_CONTAINER_OF(item, struct alarm_timer, timer.item)->name);
}

static void drop(struct tdl_item *item)
{
    trace_add((char)(TDL_CONTAINER_OF(item, struct alarm_timer, timer.item)->name - 'A' + 'a'));
}

static void setup(void)
{
    tdl_sched_init(&sched);
    sched.drop = drop;
    for (int i = 0; i < 26; i++) {
        tdl_timer_init(&timers[i].timer, ring);
        timers[i].name = (char)('A' + i);
    }
}

static void arm(int i, uint64_t deadline_ns)
{
    ck_assert_int_eq(tdl_timer_arm(&sched, &timers[i].timer, deadline_ns), 0);
}

static const char *run_at(uint64_t now_ns)
{
    (void)tdl_sched_expire(&sched, now_ns);
    ck_assert(tdl_sched_check(&sched));
    return run_once(&sched);
}

START_TEST(a_timer_is_forty_eight_bytes)
{
    ck_assert_uint_eq(sizeof(struct tdl_timer), 48);
}
END_TEST

START_TEST(due_timers_run_in_deadline_order)
{
    setup();
    arm(0, 300);
    arm(1, 100);
    arm(2, 200);
    ck_assert_str_eq(run_at(250), "BC");
    ck_assert_str_eq(run_at(300), "A");
    ck_assert(!tdl_sched_has_timers(&sched));
}
END_TEST

START_TEST(equal_deadlines_run_in_arming_order_also_across_the_wrap)
{
    for (uint32_t back = 0; back < 8; back++) {
        setup();
        sched.armed = UINT32_C(0) - back;
        for (int i = 0; i < 8; i++) {
            arm(i, 5);
        }
        ck_assert_str_eq(run_at(5), "ABCDEFGH");
    }
}
END_TEST

START_TEST(a_timer_is_never_early)
{
    setup();
    arm(0, 1000);
    ck_assert_uint_eq(tdl_sched_expire(&sched, 999), 0);
    ck_assert_uint_eq(tdl_sched_timeout(&sched, 999), 1);
    ck_assert_uint_eq(tdl_sched_timeout(&sched, 1000), 0);
    ck_assert_uint_eq(tdl_sched_timeout(&sched, 5000), 0);
    ck_assert_uint_eq(tdl_sched_expire(&sched, 1000), 1);
    ck_assert_uint_eq(tdl_sched_timeout(&sched, 1000), UINT64_MAX);
}
END_TEST

START_TEST(a_disarmed_timer_leaves_the_heap_at_once)
{
    setup();
    arm(0, 100);
    arm(1, 200);
    ck_assert(tdl_timer_disarm(&sched, &timers[0].timer));
    ck_assert(!tdl_timer_disarm(&sched, &timers[0].timer));
    ck_assert_uint_eq(sched.timer_count, 1);
    ck_assert_uint_eq(tdl_sched_timeout(&sched, 0), 200);
    ck_assert_str_eq(run_at(200), "B");
}
END_TEST

START_TEST(arming_an_armed_timer_moves_it_behind_its_equals)
{
    setup();
    arm(0, 100);
    arm(1, 100);
    arm(0, 100);
    ck_assert_uint_eq(sched.timer_count, 2);
    ck_assert_str_eq(run_at(100), "BA");
    arm(0, 50);
    arm(0, 70);
    ck_assert_str_eq(run_at(60), "");
    ck_assert_str_eq(run_at(70), "A");
}
END_TEST

START_TEST(a_due_timer_waits_in_the_ready_queue_and_can_be_canceled_there)
{
    setup();
    arm(0, 10);
    arm(1, 20);
    ck_assert_uint_eq(tdl_sched_expire(&sched, 30), 2);
    ck_assert_int_eq(tdl_timer_arm(&sched, &timers[0].timer, 99), TDL_ESTATE);
    ck_assert(!tdl_timer_disarm(&sched, &timers[0].timer));
    ck_assert(tdl_sched_cancel(&sched, &timers[0].timer.item));
    ck_assert_int_eq(tdl_timer_arm(&sched, &timers[0].timer, 99), TDL_ESTATE);
    ck_assert_str_eq(run_once(&sched), "aB");
    arm(0, 99);
    ck_assert_str_eq(run_at(99), "A");
}
END_TEST

static void ring_and_arm_again(struct tdl_item *item)
{
    struct alarm_timer *self = TDL_CONTAINER_OF(item, struct alarm_timer, timer.item);
    trace_add(self->name);
    (void)tdl_timer_arm(&sched, &self->timer, self->timer.deadline_ns + 10);
}

START_TEST(a_timer_may_arm_itself_from_its_run)
{
    setup();
    timers[0].timer.item.run = ring_and_arm_again;
    arm(0, 10);
    for (uint64_t now = 10; now <= 50; now += 10) {
        ck_assert_str_eq(run_at(now), "A");
    }
    ck_assert(tdl_timer_disarm(&sched, &timers[0].timer));
}
END_TEST

START_TEST(drain_takes_the_timers_too)
{
    setup();
    arm(0, 10);
    arm(1, 5);
    (void)tdl_sched_expire(&sched, 5);
    arm(2, 20);
    trace_reset();
    tdl_sched_drain(&sched, drop);
    ck_assert_uint_eq(trace_used, 3);
    ck_assert_int_eq(trace_text[0], 'b');
    ck_assert(!tdl_sched_has_timers(&sched));
    ck_assert(tdl_sched_check(&sched));
}
END_TEST

enum { MANY = 2000 };
static struct tdl_timer many[MANY];
static uint64_t last_deadline;
static size_t rung;

static void ring_in_order(struct tdl_item *item)
{
    struct tdl_timer *t = TDL_CONTAINER_OF(item, struct tdl_timer, item);
    ck_assert_uint_gt(t->deadline_ns, last_deadline);
    last_deadline = t->deadline_ns;
    rung++;
}

START_TEST(a_long_mix_of_arm_disarm_and_expire_keeps_order_and_counts)
{
    uint64_t seed = 3, now = 0;
    size_t armed = 0;

    tdl_sched_init(&sched);
    rung = 0;
    last_deadline = 0;
    for (int i = 0; i < MANY; i++) {
        tdl_timer_init(&many[i], ring_in_order);
    }
    for (uint64_t step = 0; step < 40000; step++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        struct tdl_timer *t = &many[(seed >> 33) % MANY];
        if (t->item.link.state == TDL_ITEM_ARMED && seed >> 62 != 0) {
            ck_assert(tdl_timer_disarm(&sched, t));
            armed--;
        } else {
            if (t->item.link.state == TDL_ITEM_IDLE) {
                armed++;
            }
            uint64_t deadline = ((now + 1 + (seed >> 40) % 5000) << 20) + step;
            ck_assert_int_eq(tdl_timer_arm(&sched, t, deadline), 0);
        }
        if (step % 100 == 0) {
            now += 50;
            rung = 0;
            (void)tdl_sched_expire(&sched, now << 20);
            (void)run_once(&sched);
            armed -= rung;
            ck_assert(tdl_sched_check(&sched));
        }
        ck_assert_uint_eq(sched.timer_count, armed);
    }
}
END_TEST

SUITE("core/timer", a_timer_is_forty_eight_bytes, due_timers_run_in_deadline_order,
      equal_deadlines_run_in_arming_order_also_across_the_wrap, a_timer_is_never_early,
      a_disarmed_timer_leaves_the_heap_at_once, arming_an_armed_timer_moves_it_behind_its_equals,
      a_due_timer_waits_in_the_ready_queue_and_can_be_canceled_there, a_timer_may_arm_itself_from_its_run,
      drain_takes_the_timers_too, a_long_mix_of_arm_disarm_and_expire_keeps_order_and_counts)

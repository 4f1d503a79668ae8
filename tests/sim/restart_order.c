/* Goal: remote items posted before a run, between two runs and while a run ends keep their producer's
 * order across the restart, and their place among the local items. Method: one producer's numbered posts,
 * put at each of those moments by the simulated host. */
#include "sim_host.h"
#include "suite.h"

#include <string.h>

static struct sim_host sim;
static struct tdl_item things[26]; /* A to Z, by link.user */
static char order[64];
static size_t used;

static void run_thing(struct tdl_item *item)
{
    order[used++] = (char)item->link.user;
    order[used] = '\0';
}

static void setup(void)
{
    sim_open(&sim);
    used = 0;
    order[0] = '\0';
    for (unsigned i = 0; i < 26; i++) {
        tdl_item_init(&things[i], run_thing);
        things[i].link.user = (uint16_t)('A' + i);
    }
}

static void post(char name)
{
    ck_assert_int_eq(tdl_inbox_post(&sim.inbox, &things[name - 'A'].link), 0);
}

static void push(char name)
{
    tdl_sched_push(&sim.sched, &things[name - 'A']);
}

static void stop_and_post_b(struct tdl_item *item)
{
    run_thing(item);
    tdl_sched_stop(&sim.sched);
    post('B');
}

static void stop_only(struct tdl_item *item)
{
    run_thing(item);
    tdl_sched_stop(&sim.sched);
}

START_TEST(posts_before_between_and_at_the_end_of_a_run_keep_their_order)
{
    setup();
    things['S' - 'A'].run = stop_and_post_b;
    post('A');
    push('S');
    sim_run_until_stopped(&sim);
    ck_assert_str_eq(order, "AS");
    post('C');
    push('L');
    post('D');
    things['S' - 'A'].run = stop_only;
    push('S');
    sim_run_until_stopped(&sim);
    ck_assert_str_eq(order, "ASBCLDS");
    sim_close(&sim);
}
END_TEST

static void interrupt_and_stop(struct tdl_item *item)
{
    run_thing(item);
    post('R');
    tdl_sched_interrupt(&sim.sched);
    tdl_sched_stop(&sim.sched);
}

START_TEST(an_interrupted_run_continues_where_it_was_before_what_was_posted_meanwhile)
{
    setup();
    things['I' - 'A'].run = interrupt_and_stop;
    push('A');
    push('I');
    push('B');
    push('C');
    sim_run_until_stopped(&sim);
    ck_assert_str_eq(order, "AI");
    post('T');
    push('D');
    things['S' - 'A'].run = stop_only;
    push('S');
    sim_run_until_stopped(&sim);
    ck_assert_str_eq(order, "AIBCRTDS");
    sim_close(&sim);
}
END_TEST

static void post_stop(struct sim_host *self, bool parked)
{
    (void)self;
    if (parked) {
        post('A');
        things['S' - 'A'].run = stop_only;
        post('S');
        post('Z');
    }
}

START_TEST(a_stop_posted_from_another_thread_ends_the_turn_that_takes_it)
{
    setup();
    sim.others = post_stop;
    sim_run_until_stopped(&sim);
    ck_assert_str_eq(order, "ASZ");
    sim_close(&sim);
}
END_TEST

SUITE("sim/restart_order", posts_before_between_and_at_the_end_of_a_run_keep_their_order,
      an_interrupted_run_continues_where_it_was_before_what_was_posted_meanwhile,
      a_stop_posted_from_another_thread_ends_the_turn_that_takes_it)

/* Goal: generations, cancel, interrupt, stop and drain keep their contract. Method: named items that write
 * down when they run, compared with the order expected. */
#include "suite.h"
#include "trace.h"

static struct tdl_sched sched;
static struct traced a, b, c, d;

static void setup(void)
{
    tdl_sched_init(&sched);
    sched.drop = traced_drop;
    traced_init(&a, 'A', &sched);
    traced_init(&b, 'B', &sched);
    traced_init(&c, 'C', &sched);
    traced_init(&d, 'D', &sched);
}

static void push_abcd(void)
{
    tdl_sched_push(&sched, &a.item);
    tdl_sched_push(&sched, &b.item);
    tdl_sched_push(&sched, &c.item);
    tdl_sched_push(&sched, &d.item);
}

START_TEST(items_have_the_promised_sizes)
{
    ck_assert_uint_eq(sizeof(struct tdl_item), 24);
}
END_TEST

START_TEST(a_generation_runs_in_the_order_pushed)
{
    setup();
    push_abcd();
    ck_assert(tdl_sched_has_ready(&sched));
    ck_assert(tdl_sched_check(&sched));
    ck_assert_uint_eq(tdl_sched_freeze(&sched), 4);
    trace_reset();
    ck_assert_uint_eq(tdl_sched_run(&sched), 4);
    ck_assert_str_eq(trace_text, "ABCD");
    ck_assert(!tdl_sched_has_ready(&sched));
    ck_assert(tdl_sched_check(&sched));
}
END_TEST

START_TEST(what_a_generation_schedules_waits_for_the_next)
{
    setup();
    a.then = &c;
    b.then = &d;
    c.then = &a;
    tdl_sched_push(&sched, &a.item);
    tdl_sched_push(&sched, &b.item);
    ck_assert_str_eq(run_once(&sched), "AB");
    ck_assert_str_eq(run_once(&sched), "CD");
    ck_assert_str_eq(run_once(&sched), "A");
}
END_TEST

START_TEST(what_is_pushed_after_the_freeze_is_not_in_the_generation)
{
    setup();
    tdl_sched_push(&sched, &a.item);
    (void)tdl_sched_freeze(&sched);
    tdl_sched_push(&sched, &b.item);
    trace_reset();
    ck_assert_uint_eq(tdl_sched_run(&sched), 1);
    ck_assert_str_eq(trace_text, "A");
    ck_assert_uint_eq(tdl_sched_run(&sched), 0);
    ck_assert_str_eq(run_once(&sched), "B");
}
END_TEST

START_TEST(an_item_may_push_itself_again_from_its_run)
{
    setup();
    a.then = &a;
    tdl_sched_push(&sched, &a.item);
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(run_once(&sched), "A");
    }
}
END_TEST

static void free_self(struct tdl_item *item)
{
    trace_add('F');
    free(TDL_CONTAINER_OF(item, struct traced, item));
}

START_TEST(an_item_may_free_itself_in_its_run_and_in_its_drop)
{
    setup();
    sched.drop = free_self;
    for (int canceled = 0; canceled < 2; canceled++) {
        struct traced *heap = malloc(sizeof *heap);
        ck_assert_ptr_nonnull(heap);
        traced_init(heap, 'H', &sched);
        heap->item.run = free_self;
        tdl_sched_push(&sched, &heap->item);
        if (canceled) {
            ck_assert(tdl_sched_cancel(&sched, &heap->item));
        }
        ck_assert_str_eq(run_once(&sched), "F");
    }
}
END_TEST

START_TEST(a_canceled_item_is_dropped_in_its_place_and_idle_again)
{
    setup();
    push_abcd();
    ck_assert(tdl_sched_cancel(&sched, &b.item));
    ck_assert(!tdl_sched_cancel(&sched, &b.item));
    ck_assert_uint_eq(tdl_sched_freeze(&sched), 4);
    trace_reset();
    ck_assert_uint_eq(tdl_sched_run(&sched), 3);
    ck_assert_str_eq(trace_text, "AbCD");
    ck_assert(!tdl_sched_cancel(&sched, &b.item));
    tdl_sched_push(&sched, &b.item);
    ck_assert_str_eq(run_once(&sched), "B");
}
END_TEST

START_TEST(without_a_drop_a_canceled_item_is_just_skipped)
{
    setup();
    sched.drop = NULL;
    push_abcd();
    ck_assert(tdl_sched_cancel(&sched, &a.item));
    ck_assert_str_eq(run_once(&sched), "BCD");
    ck_assert_int_eq(a.item.link.state, TDL_ITEM_IDLE);
}
END_TEST

static void cancel_c(struct traced *self)
{
    (void)tdl_sched_cancel(self->sched, &c.item);
}

START_TEST(an_item_may_cancel_a_later_one_of_its_generation)
{
    setup();
    a.also = cancel_c;
    push_abcd();
    ck_assert_str_eq(run_once(&sched), "ABcD");
}
END_TEST

static void interrupt(struct traced *self)
{
    tdl_sched_interrupt(self->sched);
}

START_TEST(an_interrupted_run_leaves_the_rest_in_front_and_in_order)
{
    setup();
    struct traced later;
    traced_init(&later, 'L', &sched);
    b.also = interrupt;
    a.then = &later;
    push_abcd();
    ck_assert_str_eq(run_once(&sched), "AB");
    ck_assert(tdl_sched_has_ready(&sched));
    ck_assert(tdl_sched_check(&sched));
    b.also = NULL;
    ck_assert_str_eq(run_once(&sched), "CDL");
}
END_TEST

START_TEST(an_interrupt_outside_of_a_run_takes_nothing_away)
{
    setup();
    push_abcd();
    tdl_sched_interrupt(&sched);
    ck_assert_str_eq(run_once(&sched), "ABCD");
}
END_TEST

static void stop(struct traced *self)
{
    tdl_sched_stop(self->sched);
}

START_TEST(a_stop_lets_the_generation_finish_and_stays_until_cleared)
{
    setup();
    a.also = stop;
    push_abcd();
    ck_assert(!tdl_sched_stopping(&sched));
    ck_assert_str_eq(run_once(&sched), "ABCD");
    ck_assert(tdl_sched_stopping(&sched));
    tdl_sched_clear_stop(&sched);
    ck_assert(!tdl_sched_stopping(&sched));
}
END_TEST

START_TEST(the_mark_counts_local_pushes)
{
    setup();
    uint32_t before = tdl_sched_mark(&sched);
    push_abcd();
    ck_assert_uint_eq(tdl_sched_mark(&sched), before + 4);
    ck_assert_uint_eq(tdl_load_relaxed_u32(tdl_sched_mark_source(&sched)), before + 4);
    ck_assert_uint_eq(d.item.link.mark, before + 4);
    (void)run_once(&sched);
    ck_assert_uint_eq(tdl_sched_mark(&sched), before + 4);
}
END_TEST

START_TEST(a_polled_queue_goes_behind_what_is_ready)
{
    setup();
    struct tdl_queue io;
    tdl_queue_init(&io);
    tdl_sched_push(&sched, &a.item);
    tdl_queue_push(&io, &b.item.link);
    tdl_queue_push(&io, &c.item.link);
    tdl_sched_push_queue(&sched, &io);
    ck_assert(tdl_queue_is_empty(&io));
    tdl_sched_push(&sched, &d.item);
    ck_assert(tdl_sched_check(&sched));
    ck_assert_str_eq(run_once(&sched), "ABCD");
}
END_TEST

static void drop_and_push_d_once(struct tdl_item *item)
{
    struct traced *self = TDL_CONTAINER_OF(item, struct traced, item);
    traced_drop(item);
    if (self == &a) {
        tdl_sched_push(&sched, &d.item);
    }
}

START_TEST(drain_gives_back_everything_also_what_a_drop_adds)
{
    setup();
    tdl_sched_push(&sched, &a.item);
    tdl_sched_push(&sched, &b.item);
    (void)tdl_sched_cancel(&sched, &b.item);
    ck_assert_uint_eq(tdl_sched_freeze(&sched), 2);
    trace_reset();
    tdl_sched_drain(&sched, drop_and_push_d_once);
    ck_assert_str_eq(trace_text, "abd");
    ck_assert(!tdl_sched_has_ready(&sched));
    ck_assert(tdl_sched_check(&sched));
    ck_assert_int_eq(d.item.link.state, TDL_ITEM_IDLE);
}
END_TEST

START_TEST(the_check_sees_a_wrong_count_and_a_wrong_order)
{
    setup();
    push_abcd();
    sched.ready_count++;
    ck_assert(!tdl_sched_check(&sched));
    sched.ready_count--;
    uint32_t mark = a.item.link.mark;
    a.item.link.mark = mark + 2;
    ck_assert(!tdl_sched_check(&sched));
    a.item.link.mark = mark;
    a.item.link.state = TDL_ITEM_IDLE;
    ck_assert(!tdl_sched_check(&sched));
    a.item.link.state = TDL_ITEM_QUEUED;
    ck_assert(tdl_sched_check(&sched));
}
END_TEST

static void run_after(struct tdl_item *item)
{
    trace_add('x');
    (void)item;
}

static struct tdl_item behind;

static void interrupt_run(struct tdl_item *item)
{
    trace_add('#');
    tdl_sched_interrupt(&sched);
    (void)item;
}

static void push_behind(struct tdl_item *item)
{
    trace_add('!');
    ck_assert(tdl_sched_running(&sched));
    tdl_sched_push_after(&sched, &behind);
    tdl_sched_interrupt(&sched);
    (void)item;
}

START_TEST(what_is_pushed_after_an_item_runs_before_the_rest_and_before_an_interrupt_takes_hold)
{
    struct tdl_item pusher;
    setup();
    tdl_item_init(&behind, run_after);
    tdl_item_init(&pusher, push_behind);
    tdl_sched_push(&sched, &a.item);
    tdl_sched_push(&sched, &pusher);
    tdl_sched_push(&sched, &b.item);
    ck_assert_str_eq(run_once(&sched), "A!x");
    ck_assert(!tdl_sched_running(&sched));
    ck_assert(tdl_sched_check(&sched));
    ck_assert_str_eq(run_once(&sched), "B");
}
END_TEST

static void run_inside(struct tdl_item *item)
{
    (void)item;
    trace_add('<');
    bool was_running = tdl_sched_nest(&sched);
    ck_assert(was_running);
    (void)tdl_sched_freeze(&sched);
    (void)tdl_sched_run(&sched);
    tdl_sched_unnest(&sched, was_running);
    ck_assert(tdl_sched_running(&sched));
    trace_add('>');
}

static void push_end(struct tdl_item *item)
{
    trace_add('!');
    tdl_sched_push_last(&sched, &behind);
    (void)item;
}

START_TEST(what_is_pushed_last_runs_when_the_generation_ends_and_when_it_is_interrupted)
{
    struct tdl_item pusher;
    struct tdl_item stopper;
    struct tdl_item both;
    setup();
    tdl_item_init(&behind, run_after);
    tdl_item_init(&pusher, push_end);
    tdl_item_init(&stopper, interrupt_run);
    tdl_sched_push(&sched, &pusher);
    tdl_sched_push(&sched, &a.item);
    ck_assert_str_eq(run_once(&sched), "!Ax");
    tdl_sched_push(&sched, &pusher);
    tdl_sched_push(&sched, &stopper);
    tdl_sched_push(&sched, &b.item);
    ck_assert_str_eq(run_once(&sched), "!#x");
    ck_assert_str_eq(run_once(&sched), "B");
    tdl_item_init(&both, run_inside);
    tdl_sched_push(&sched, &pusher);
    tdl_sched_push(&sched, &both);
    tdl_sched_push(&sched, &a.item);
    ck_assert_str_eq(run_once(&sched), "!<Ax>");
    ck_assert(tdl_sched_check(&sched));
}
END_TEST

START_TEST(a_nested_run_takes_the_rest_of_the_generation_in_order_and_ends_it)
{
    struct tdl_item outer;
    setup();
    tdl_item_init(&outer, run_inside);
    b.then = &d;
    tdl_sched_push(&sched, &a.item);
    tdl_sched_push(&sched, &outer);
    tdl_sched_push(&sched, &b.item);
    tdl_sched_push(&sched, &c.item);
    ck_assert_str_eq(run_once(&sched), "A<BC>");
    ck_assert(!tdl_sched_running(&sched));
    ck_assert(tdl_sched_check(&sched));
    ck_assert_str_eq(run_once(&sched), "D");
}
END_TEST

SUITE("core/sched", items_have_the_promised_sizes, a_generation_runs_in_the_order_pushed,
      what_a_generation_schedules_waits_for_the_next,
      what_is_pushed_after_the_freeze_is_not_in_the_generation, an_item_may_push_itself_again_from_its_run,
      an_item_may_free_itself_in_its_run_and_in_its_drop,
      a_canceled_item_is_dropped_in_its_place_and_idle_again, without_a_drop_a_canceled_item_is_just_skipped,
      an_item_may_cancel_a_later_one_of_its_generation,
      an_interrupted_run_leaves_the_rest_in_front_and_in_order,
      an_interrupt_outside_of_a_run_takes_nothing_away,
      a_nested_run_takes_the_rest_of_the_generation_in_order_and_ends_it,
      what_is_pushed_after_an_item_runs_before_the_rest_and_before_an_interrupt_takes_hold,
      what_is_pushed_last_runs_when_the_generation_ends_and_when_it_is_interrupted,
      a_stop_lets_the_generation_finish_and_stays_until_cleared, the_mark_counts_local_pushes,
      a_polled_queue_goes_behind_what_is_ready, drain_gives_back_everything_also_what_a_drop_adds,
      the_check_sees_a_wrong_count_and_a_wrong_order)

/* Goal: a remote item goes behind exactly the local items with its mark or a lower one, for every position,
 * for lists whose marks are out of order, and across the wrap of the marks. Method: remote items with marks
 * set by hand; a brute-force reference for pseudo-random mixes. */
#include "suite.h"
#include "trace.h"

#include <stdio.h>

static struct tdl_sched sched;
static struct traced local[26], remote[26];

/* Locals are A, B, ...; remotes Z, Y, .... The marks start shortly before `first`. */
static void setup(uint32_t first)
{
    tdl_sched_init(&sched);
    sched.drop = traced_drop;
    tdl_store_relaxed_u32(&sched.pushed, first);
    for (int i = 0; i < 26; i++) {
        traced_init(&local[i], (char)('A' + i), &sched);
        traced_init(&remote[i], (char)('Z' - i), &sched);
    }
}

static void push_locals(int from, int count)
{
    for (int i = from; i < from + count; i++) {
        tdl_sched_push(&sched, &local[i].item);
    }
}

/* Chains remotes 0.. with the marks given, oldest first. */
static struct tdl_link *chain(const uint32_t *marks, int count)
{
    for (int i = 0; i < count; i++) {
        remote[i].item.link.mark = marks[i];
        remote[i].item.link.next = i + 1 < count ? &remote[i + 1].item.link : NULL;
    }
    return count > 0 ? &remote[0].item.link : NULL;
}

START_TEST(an_empty_list_changes_nothing)
{
    setup(0);
    push_locals(0, 2);
    tdl_sched_merge(&sched, NULL);
    ck_assert_str_eq(run_once(&sched), "AB");
}
END_TEST

START_TEST(a_remote_item_goes_behind_the_local_items_pushed_before_its_mark)
{
    static const char *const expected[] = {"ZABC", "AZBC", "ABZC", "ABCZ"};
    for (uint32_t mark = 0; mark <= 3; mark++) {
        setup(0);
        push_locals(0, 3);
        tdl_sched_merge(&sched, chain(&mark, 1));
        ck_assert(tdl_sched_check(&sched));
        ck_assert_str_eq(run_once(&sched), expected[mark]);
    }
}
END_TEST

START_TEST(marks_are_compared_across_their_wrap)
{
    static const char *const expected[] = {"ZABC", "AZBC", "ABZC", "ABCZ"};
    for (uint32_t back = 0; back <= 3; back++) {
        for (uint32_t mark = 0; mark <= 3; mark++) {
            uint32_t first = UINT32_C(0) - back;
            uint32_t wrapped = first + mark;
            setup(first);
            push_locals(0, 3);
            tdl_sched_merge(&sched, chain(&wrapped, 1));
            ck_assert_str_eq(run_once(&sched), expected[mark]);
        }
    }
}
END_TEST

START_TEST(remote_items_of_equal_marks_keep_their_order)
{
    setup(0);
    push_locals(0, 2);
    tdl_sched_merge(&sched, chain((const uint32_t[]){1, 1, 1, 2}, 4));
    ck_assert_str_eq(run_once(&sched), "AZYXBW");
}
END_TEST

START_TEST(a_later_merge_goes_behind_an_earlier_one_with_the_same_mark)
{
    setup(0);
    push_locals(0, 2);
    tdl_sched_merge(&sched, chain((const uint32_t[]){1, 1}, 2));
    remote[2].item.link.mark = 1;
    remote[2].item.link.next = NULL;
    tdl_sched_merge(&sched, &remote[2].item.link);
    ck_assert(tdl_sched_check(&sched));
    ck_assert_str_eq(run_once(&sched), "AZYXB");
}
END_TEST

START_TEST(a_list_with_marks_out_of_order_is_put_in_order_first)
{
    setup(0);
    push_locals(0, 3);
    tdl_sched_merge(&sched, chain((const uint32_t[]){3, 1, 2, 1, 0, 3}, 6));
    ck_assert(tdl_sched_check(&sched));
    ck_assert_str_eq(run_once(&sched), "VAYWBXCZU");
}
END_TEST

START_TEST(a_push_after_a_merge_goes_behind_it)
{
    setup(0);
    push_locals(0, 1);
    tdl_sched_merge(&sched, chain((const uint32_t[]){0, 1}, 2));
    push_locals(1, 1);
    ck_assert(tdl_sched_check(&sched));
    ck_assert_str_eq(run_once(&sched), "ZAYB");
}
END_TEST

START_TEST(a_remote_item_canceled_before_the_merge_is_dropped_in_its_place)
{
    setup(0);
    push_locals(0, 2);
    remote[0].name = 'R';
    remote[0].item.link.state = TDL_ITEM_CANCELED;
    tdl_sched_merge(&sched, chain((const uint32_t[]){1}, 1));
    ck_assert_str_eq(run_once(&sched), "ArB");
}
END_TEST

static void interrupt(struct traced *self)
{
    tdl_sched_interrupt(self->sched);
}

START_TEST(the_rest_of_an_interrupted_generation_stays_in_front_of_newer_remote_items)
{
    setup(0);
    push_locals(0, 3);
    local[0].also = interrupt;
    ck_assert_str_eq(run_once(&sched), "A");
    push_locals(3, 1);
    tdl_sched_merge(&sched, chain((const uint32_t[]){3, 4}, 2));
    ck_assert_str_eq(run_once(&sched), "BCZDY");
}
END_TEST

static uint32_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(*state >> 33);
}

/* Puts each remote item where the contract says, one by one: behind the locals with its mark or a lower one
 * and behind every remote item already placed that is not newer. */
static void reference(const uint32_t *marks, int remotes, uint32_t first, int locals, char *text)
{
    int used = 0;
    for (uint32_t at = 0; at <= (uint32_t)locals; at++) {
        if (at > 0) {
            text[used++] = (char)('A' + at - 1);
        }
        for (int i = 0; i < remotes; i++) {
            if (marks[i] == first + at) {
                text[used++] = (char)('Z' - i);
            }
        }
    }
    text[used] = '\0';
}

START_TEST(random_mixes_agree_with_the_reference)
{
    uint64_t seed = 7;
    for (int round = 0; round < 20000; round++) {
        uint32_t marks[13], first = random_next(&seed) % 2 ? 0 : UINT32_MAX - random_next(&seed) % 8;
        int locals = (int)(random_next(&seed) % 13), remotes = (int)(random_next(&seed) % 13);
        char expected[64];

        setup(first);
        push_locals(0, locals);
        for (int i = 0; i < remotes; i++) {
            marks[i] = first + random_next(&seed) % (uint32_t)(locals + 1);
        }
        reference(marks, remotes, first, locals, expected);

        int split = remotes > 0 ? (int)(random_next(&seed) % (uint32_t)remotes) : 0;
        struct tdl_link *list = chain(marks, remotes), *rest = list;
        if (split > 0) {
            rest = &remote[split].item.link;
            remote[split - 1].item.link.next = NULL;
            tdl_sched_merge(&sched, list);
        }
        tdl_sched_merge(&sched, rest);
        ck_assert(tdl_sched_check(&sched));
        ck_assert_str_eq(run_once(&sched), expected);
    }
}
END_TEST

SUITE("core/merge", an_empty_list_changes_nothing,
      a_remote_item_goes_behind_the_local_items_pushed_before_its_mark, marks_are_compared_across_their_wrap,
      remote_items_of_equal_marks_keep_their_order,
      a_later_merge_goes_behind_an_earlier_one_with_the_same_mark,
      a_list_with_marks_out_of_order_is_put_in_order_first, a_push_after_a_merge_goes_behind_it,
      a_remote_item_canceled_before_the_merge_is_dropped_in_its_place,
      the_rest_of_an_interrupted_generation_stays_in_front_of_newer_remote_items,
      random_mixes_agree_with_the_reference)

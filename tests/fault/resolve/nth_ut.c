/* Goal: whichever allocation or thread start fails, each lookup is answered, refused or released exactly
 * once, no slot is lost and nothing leaks. Method: one scene (forward and reverse, long names, some
 * dropped), run with the first, second, ... pass failing until a run sees no failure. */
#include "../../preload/resolver.h"
#include "../../unit/pool/post_box.h"

#include <check.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include "treadle/failpoint.h"
#include "treadle/lookup.h"
#include "treadle/status.h"

#define LOOKUPS 8u
#define PASSES_MOST 200u

static tdl_atomic_u32 released;

struct asked {
    struct tdl_lookup lookup;
    struct tdl_link done;
};

static void count_and_free(struct tdl_lookup *lookup)
{
    free(TDL_CONTAINER_OF(lookup, struct asked, lookup));
    (void)tdl_fetch_add_acq_rel_u32(&released, 1);
}

static int prepare(struct tdl_lookup *lookup, unsigned number)
{
    const struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    char name[300];
    if (number % 2 == 0) {
        return tdl_lookup_reverse(lookup, (const struct sockaddr *)&in, sizeof in, NI_NUMERICHOST,
                                  count_and_free);
    }
    memset(name, '1', sizeof name);
    name[sizeof name - 1] = '\0';
    return tdl_lookup_forward(lookup, name, "80", &hints, count_and_free);
}

static struct asked *ask(struct tdl_pool *pool, struct post_box *box, unsigned number)
{
    struct asked *asked = malloc(sizeof *asked);
    TDL_ASSERT(asked != NULL);
    int status = prepare(&asked->lookup, number);
    if (status == 0) {
        status = tdl_lookup_submit(&asked->lookup, pool, 0, &box->inbox, &asked->done);
    }
    if (status == 0) {
        return asked;
    }
    ck_assert(status == TDL_ENOMEM || status == TDL_EAGAIN);
    tdl_lookup_clear(&asked->lookup);
    free(asked);
    return NULL;
}

static unsigned answer(struct post_box *box, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct asked *asked = TDL_CONTAINER_OF(post_box_wait(box), struct asked, done);
        tdl_lookup_clear(&asked->lookup);
        free(asked);
    }
    return count;
}

static void scene(void)
{
    const uint32_t slots[] = {2};
    const struct tdl_pool_options options = {.slots = slots, .classes = 1};
    struct tdl_pool *pool;
    struct post_box box;
    unsigned expected = 0;
    unsigned dropped = 0;
    tdl_store_seq_u32(&released, 0);
    if (tdl_pool_open(&pool, &options) != 0) {
        return;
    }
    post_box_open(&box);
    for (unsigned i = 0; i < LOOKUPS; i++) {
        struct asked *asked = ask(pool, &box, i);
        bool gone = asked != NULL && i % 3 == 2 && tdl_lookup_drop(&asked->lookup, pool);
        dropped += gone ? 1 : 0;
        expected += asked != NULL && !gone ? 1 : 0;
    }
    ck_assert_uint_eq(answer(&box, expected), expected);
    while (tdl_load_acquire_u32(&released) != dropped) {
        sched_yield();
    }
    tdl_pool_close(pool);
    wait_no_pool_alive();
    ck_assert_ptr_null(post_box_poll(&box));
    post_box_close(&box);
}

/* Returns how many passes one scene makes. */
static unsigned fail_each(enum tdl_failpoint kind)
{
    for (unsigned nth = 1; nth < PASSES_MOST; nth++) {
        tdl_failpoint_set(kind, nth);
        scene();
        bool failed = tdl_failpoint_count(kind) >= nth;
        tdl_failpoint_set(kind, 0);
        if (!failed) {
            return nth - 1;
        }
    }
    return PASSES_MOST;
}

START_TEST(every_allocation_may_fail)
{
    unsigned passes = fail_each(TDL_FAIL_ALLOC);
    ck_assert_uint_ge(passes, LOOKUPS / 2);
    ck_assert_uint_lt(passes, PASSES_MOST);
}
END_TEST

START_TEST(every_thread_start_may_fail)
{
    for (unsigned nth = 1; nth <= 4; nth++) {
        tdl_failpoint_set(TDL_FAIL_THREAD, nth);
        scene();
        tdl_failpoint_set(TDL_FAIL_THREAD, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fault/resolve");
    TCase *tcase = tcase_create("nth");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_allocation_may_fail);
    tcase_add_test(tcase, every_thread_start_may_fail);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

/* Goal: lookups give libc's rows and errors, wait for slots, never reach libc once dropped while waiting, and
 * free themselves when dropped while libc executes. Method: a resolver that is linked ahead of libc, counts
 * each call and can be held. */
#include "../pool/post_box.h"
#include "resolver.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "treadle/failpoint.h"
#include "treadle/lookup.h"
#include "treadle/status.h"

static struct post_box box;
static struct tdl_pool *pool;
static tdl_atomic_u32 released;

struct asked {
    struct tdl_lookup lookup;
    struct tdl_link done;
};

static void set_up(void)
{
    post_box_open(&box);
    pool = pool_of(3, 1);
    tdl_store_seq_u32(&released, 0);
}

static void tear_down(void)
{
    resolver_let_go();
    if (pool != NULL) {
        tdl_pool_close(pool);
    }
    wait_no_pool_alive();
    post_box_close(&box);
}

static void asked_free(struct tdl_lookup *lookup)
{
    free(TDL_CONTAINER_OF(lookup, struct asked, lookup));
    (void)tdl_fetch_add_seq_u32(&released, 1);
}

static struct asked *ask(const char *node, const char *service, int family)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
    struct asked *asked = calloc(1, sizeof *asked);
    TDL_ASSERT(asked != NULL);
    ck_assert_int_eq(tdl_lookup_forward(&asked->lookup, node, service, &hints, asked_free), 0);
    ck_assert_int_eq(tdl_lookup_submit(&asked->lookup, pool, 0, &box.inbox, &asked->done), 0);
    return asked;
}

static struct asked *answer(void)
{
    return TDL_CONTAINER_OF(post_box_wait(&box), struct asked, done);
}

static void finish(struct asked *asked)
{
    tdl_lookup_clear(&asked->lookup);
    free(asked);
}

START_TEST(a_forward_lookup_gives_the_rows_of_libc)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *expected;
    (void)ask("localhost", "80", AF_UNSPEC);
    struct asked *asked = answer();
    ck_assert_int_eq(tdl_lookup_status(&asked->lookup), 0);
    ck_assert_int_eq(getaddrinfo("localhost", "80", &hints, &expected), 0);
    struct addrinfo *got = asked->lookup.rows;
    for (struct addrinfo *row = expected; row != NULL; row = row->ai_next, got = got->ai_next) {
        ck_assert_ptr_nonnull(got);
        ck_assert_uint_eq(row->ai_addrlen, got->ai_addrlen);
        ck_assert_mem_eq(row->ai_addr, got->ai_addr, row->ai_addrlen);
    }
    ck_assert_ptr_null(got);
    freeaddrinfo(expected);
    finish(asked);
}
END_TEST

START_TEST(a_reverse_lookup_gives_the_names_of_libc)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct asked *asked = calloc(1, sizeof *asked);
    ck_assert_ptr_nonnull(asked);
    ck_assert_int_eq(tdl_lookup_reverse(&asked->lookup, (struct sockaddr *)&in, sizeof in, 0, asked_free), 0);
    ck_assert_int_eq(tdl_lookup_submit(&asked->lookup, pool, 0, &box.inbox, &asked->done), 0);
    ck_assert_ptr_eq(answer(), asked);
    ck_assert_int_eq(tdl_lookup_status(&asked->lookup), 0);
    ck_assert_str_eq(asked->lookup.host_name, "localhost");
    ck_assert_str_eq(asked->lookup.service_name, "http");
    tdl_lookup_clear(&asked->lookup);
    ck_assert_int_eq(tdl_lookup_reverse(&asked->lookup, (struct sockaddr *)&in, 4096, 0, NULL), TDL_EINVAL);
    free(asked);
}
END_TEST

START_TEST(an_answered_lookup_may_be_submitted_again)
{
    struct asked *asked = ask("localhost", "80", AF_INET);
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_eq(answer(), asked);
        ck_assert_ptr_nonnull(asked->lookup.rows);
        tdl_job_received(&asked->lookup.job);
        ck_assert_int_eq(tdl_lookup_submit(&asked->lookup, pool, 0, &box.inbox, &asked->done), 0);
    }
    finish(answer());
}
END_TEST

START_TEST(errors_carry_the_code_and_the_errno_of_libc)
{
    (void)ask("system-5.test", NULL, AF_UNSPEC);
    struct asked *asked = answer();
    ck_assert_int_eq(tdl_lookup_status(&asked->lookup), TDL_EAI_SYSTEM);
    ck_assert_int_eq(asked->lookup.system_errno, EIO);
    finish(asked);
    (void)ask("system-0.test", NULL, AF_UNSPEC);
    asked = answer();
    ck_assert_int_eq(tdl_lookup_status(&asked->lookup), TDL_EAI_SYSTEM);
    ck_assert_int_eq(asked->lookup.system_errno, 0);
    finish(asked);
    (void)ask("eai-3.test", NULL, AF_UNSPEC);
    asked = answer();
    ck_assert_int_eq(asked->lookup.eai, EAI_AGAIN);
    ck_assert_int_eq(tdl_lookup_status(&asked->lookup), TDL_EAI_AGAIN);
    finish(asked);
    (void)ask(NULL, NULL, AF_UNSPEC);
    asked = answer();
    ck_assert_int_eq(tdl_lookup_status(&asked->lookup), TDL_EAI_NONAME);
    finish(asked);
}
END_TEST

START_TEST(long_names_are_kept_whole)
{
    char name[2000];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    resolver_hold();
    struct asked *asked = ask(name, "80", AF_INET);
    memset(name, 'b', sizeof name - 1);
    ck_assert_uint_eq(strspn(asked->lookup.node, "a"), sizeof name - 1);
    ck_assert_str_eq(asked->lookup.service, "80");
    ck_assert(tdl_lookup_drop(&asked->lookup, pool));
    resolver_let_go();
}
END_TEST

START_TEST(no_more_lookups_execute_than_slots)
{
    resolver_hold();
    for (int i = 0; i < 64; i++) {
        (void)ask("localhost", "80", AF_INET);
    }
    resolver_wait_inside(3);
    struct tdl_pool_counts counts;
    tdl_pool_counts(pool, &counts);
    ck_assert_uint_eq(counts.running[0], 3);
    ck_assert_uint_eq(counts.waiting[0], 61);
    resolver_let_go();
    for (int i = 0; i < 64; i++) {
        struct asked *asked = answer();
        ck_assert_int_eq(tdl_lookup_status(&asked->lookup), 0);
        finish(asked);
    }
    tdl_pool_counts(pool, &counts);
    ck_assert_uint_eq(counts.threads_started, 3);
}
END_TEST

START_TEST(a_lookup_dropped_while_it_waits_never_reaches_libc)
{
    struct asked *waiting[20];
    resolver_hold();
    unsigned before = resolver_calls();
    for (int i = 0; i < 3; i++) {
        (void)ask("localhost", "80", AF_INET);
    }
    resolver_wait_inside(3);
    for (int i = 0; i < 20; i++) {
        waiting[i] = ask("never-asked.test", NULL, AF_INET);
    }
    for (int i = 0; i < 20; i++) {
        ck_assert(tdl_lookup_drop(&waiting[i]->lookup, pool));
    }
    ck_assert_uint_eq(tdl_load_seq_u32(&released), 20);
    resolver_let_go();
    for (int i = 0; i < 3; i++) {
        finish(answer());
    }
    ck_assert_uint_eq(resolver_calls() - before, 3);
}
END_TEST

START_TEST(close_leaves_executing_lookups_to_their_workers)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    resolver_hold();
    (void)ask("localhost", "80", AF_UNSPEC);
    (void)ask("localhost", "80", AF_INET);
    struct asked *reverse = calloc(1, sizeof *reverse);
    ck_assert_ptr_nonnull(reverse);
    ck_assert_int_eq(tdl_lookup_reverse(&reverse->lookup, (struct sockaddr *)&in, sizeof in, 0, asked_free),
                     0);
    ck_assert_int_eq(tdl_lookup_submit(&reverse->lookup, pool, 0, &box.inbox, &reverse->done), 0);
    resolver_wait_inside(3);
    (void)ask("localhost", "80", AF_INET);
    tdl_pool_close(pool);
    pool = NULL;
    ck_assert_uint_eq(tdl_load_seq_u32(&released), 1);
    resolver_let_go();
    wait_no_pool_alive();
    ck_assert_uint_eq(tdl_load_seq_u32(&released), 4);
}
END_TEST

#ifdef TDL_FAILPOINTS
START_TEST(a_result_that_finds_no_memory_is_an_error_and_gives_its_slot_on)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct asked first;
    ck_assert_int_eq(
        tdl_lookup_reverse(&first.lookup, (struct sockaddr *)&in, sizeof in, NI_NUMERICSERV, NULL), 0);
    /* The failure is set while libc executes, so that no start of a worker takes it. */
    resolver_hold();
    ck_assert_int_eq(tdl_lookup_submit(&first.lookup, pool, 0, &box.inbox, &first.done), 0);
    resolver_wait_inside(1);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    resolver_let_go();
    ck_assert_ptr_eq(answer(), &first);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 0);
    ck_assert_int_eq(tdl_lookup_status(&first.lookup), TDL_EAI_MEMORY);
    tdl_lookup_clear(&first.lookup);
    for (int i = 0; i < 10; i++) {
        (void)ask("localhost", "80", AF_INET);
    }
    for (int i = 0; i < 10; i++) {
        finish(answer());
    }
}
END_TEST

START_TEST(a_long_name_that_finds_no_memory_is_refused)
{
    struct tdl_lookup lookup;
    char name[200];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    ck_assert_int_eq(tdl_lookup_forward(&lookup, name, NULL, NULL, NULL), TDL_ENOMEM);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 0);
    tdl_lookup_clear(&lookup);
}
END_TEST
#endif

START_TEST(what_is_no_address_and_no_pool_gets_a_code)
{
    struct tdl_lookup lookup;
    struct tdl_link done;
    struct sockaddr_in in = {.sin_family = AF_INET};
    ck_assert_int_eq(tdl_lookup_reverse(&lookup, NULL, sizeof in, 0, NULL), TDL_EINVAL);
    tdl_lookup_clear(&lookup);
    ck_assert_int_eq(tdl_lookup_reverse(&lookup, (struct sockaddr *)&in, 10000, 0, NULL), TDL_EINVAL);
    tdl_lookup_clear(&lookup);
    memset(&lookup, 0, sizeof lookup);
    tdl_lookup_clear(&lookup);
    ck_assert_int_eq(tdl_lookup_forward(&lookup, "name", NULL, NULL, NULL), 0);
    ck_assert_int_eq(tdl_lookup_submit(&lookup, NULL, 0, &box.inbox, &done), TDL_EINVAL);
    ck_assert_int_eq(tdl_lookup_submit(&lookup, pool, 99, &box.inbox, &done), TDL_EINVAL);
    tdl_lookup_clear(&lookup);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lookup");
    TCase *tcase = tcase_create("lookup");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_is_no_address_and_no_pool_gets_a_code);
    tcase_add_test(tcase, a_forward_lookup_gives_the_rows_of_libc);
    tcase_add_test(tcase, a_reverse_lookup_gives_the_names_of_libc);
    tcase_add_test(tcase, an_answered_lookup_may_be_submitted_again);
    tcase_add_test(tcase, errors_carry_the_code_and_the_errno_of_libc);
    tcase_add_test(tcase, long_names_are_kept_whole);
    tcase_add_test(tcase, no_more_lookups_execute_than_slots);
    tcase_add_test(tcase, a_lookup_dropped_while_it_waits_never_reaches_libc);
    tcase_add_test(tcase, close_leaves_executing_lookups_to_their_workers);
#ifdef TDL_FAILPOINTS
    tcase_add_test(tcase, a_result_that_finds_no_memory_is_an_error_and_gives_its_slot_on);
    tcase_add_test(tcase, a_long_name_that_finds_no_memory_is_refused);
#endif
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

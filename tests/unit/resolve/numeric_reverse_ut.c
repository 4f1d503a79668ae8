/* Goal: each reverse answer given without libc is libc's answer.
 * Method: addresses, scopes, ports, lengths and all flag bits, each asked of both. */
#include <arpa/inet.h>
#include <check.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "treadle/numeric.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static unsigned answered;

static void compare(const struct sockaddr *address, socklen_t length, int flags)
{
    char host[TDL_NUMERIC_HOST_MAX];
    char service[TDL_NUMERIC_SERVICE_MAX];
    char libc_host[NI_MAXHOST];
    char libc_service[NI_MAXSERV];
    if (!tdl_numeric_reverse(host, service, address, length, flags)) {
        return;
    }
    answered++;
    int eai =
        getnameinfo(address, length, libc_host, sizeof libc_host, libc_service, sizeof libc_service, flags);
    ck_assert_msg(eai == 0, "flags %d: libc says %d", flags, eai);
    ck_assert_str_eq(host, libc_host);
    ck_assert_str_eq(service, libc_service);
}

START_TEST(every_answer_for_ipv4_is_the_one_of_libc)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    for (int flags = 0; flags < 128; flags++) {
        for (int i = 0; i < 200; i++) {
            in.sin_addr.s_addr = i < 2 ? (in_addr_t)-i : (in_addr_t)((unsigned)rand() * 2654435761u);
            in.sin_port = (uint16_t)(i < 2 ? -i : rand());
            for (socklen_t length = 0; length <= sizeof in + 2; length++) {
                struct sockaddr_storage storage = {0};
                memcpy(&storage, &in, sizeof in);
                compare((const struct sockaddr *)&storage, length, flags);
            }
        }
    }
    ck_assert_uint_gt(answered, 2000);
}
END_TEST

START_TEST(every_answer_for_ipv6_is_the_one_of_libc)
{
    static const char *const hosts[] = {"::",
                                        "::1",
                                        "fe80::1",
                                        "ff02::1",
                                        "ff01::1",
                                        "ff05::1",
                                        "2001::1",
                                        "fec0::1",
                                        "::1.2.3.4",
                                        "::ffff:1.2.3.4",
                                        "1:2:3:4:5:6:7:8",
                                        "1111:2222:3333:4444:5555:6666:7777:8888"};
    static const uint32_t scopes[] = {0, 1, 2, 99, 4294967295u};
    for (size_t h = 0; h < COUNT(hosts); h++) {
        for (size_t s = 0; s < COUNT(scopes); s++) {
            for (int flags = 0; flags < 128; flags++) {
                struct sockaddr_in6 in6 = {
                    .sin6_family = AF_INET6, .sin6_port = htons(443), .sin6_flowinfo = 7};
                ck_assert_int_eq(inet_pton(AF_INET6, hosts[h], &in6.sin6_addr), 1);
                in6.sin6_scope_id = scopes[s];
                compare((const struct sockaddr *)&in6, sizeof in6, flags);
                compare((const struct sockaddr *)&in6, sizeof in6 - 1, flags);
            }
        }
    }
    ck_assert_uint_gt(answered, 200);
}
END_TEST

START_TEST(what_needs_a_database_is_refused)
{
    char host[TDL_NUMERIC_HOST_MAX];
    char service[TDL_NUMERIC_SERVICE_MAX];
    struct sockaddr_in in = {.sin_family = AF_INET};
    const struct sockaddr *address = (const struct sockaddr *)&in;
    ck_assert(tdl_numeric_reverse(host, service, address, sizeof in, NI_NUMERICHOST | NI_NUMERICSERV));
    ck_assert_str_eq(host, "0.0.0.0");
    ck_assert_str_eq(service, "0");
    ck_assert(!tdl_numeric_reverse(host, service, address, sizeof in, NI_NUMERICHOST));
    ck_assert(!tdl_numeric_reverse(host, service, address, sizeof in, NI_NUMERICSERV));
    in.sin_family = AF_UNIX;
    ck_assert(!tdl_numeric_reverse(host, service, address, sizeof in, NI_NUMERICHOST | NI_NUMERICSERV));
}
END_TEST

START_TEST(what_is_no_address_is_refused)
{
    char host[TDL_NUMERIC_HOST_MAX], service[TDL_NUMERIC_SERVICE_MAX];
    struct sockaddr_in in = {.sin_family = AF_INET};
    int flags = NI_NUMERICHOST | NI_NUMERICSERV;
    ck_assert(!tdl_numeric_reverse(host, service, NULL, sizeof in, flags));
    ck_assert(!tdl_numeric_reverse(host, service, (struct sockaddr *)&in, 0, flags));
    ck_assert(!tdl_numeric_reverse(host, service, (struct sockaddr *)&in, 1, flags));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numeric_reverse");
    TCase *tcase = tcase_create("numeric_reverse");
    tcase_add_test(tcase, what_is_no_address_is_refused);
    tcase_add_test(tcase, every_answer_for_ipv4_is_the_one_of_libc);
    tcase_add_test(tcase, every_answer_for_ipv6_is_the_one_of_libc);
    tcase_add_test(tcase, what_needs_a_database_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

/* Goal: each forward answer given without libc is libc's answer: code, rows, order, addresses, canonical
 * name. Method: the product of hosts, services, families, types, protocols and flags, each asked of both. */
#include <check.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "treadle/numeric.h"

static const char *const hosts[] = {
    NULL,
    "",
    "*",
    " ",
    "0",
    "1",
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "256.0.0.1",
    "1.2.3.4.5",
    "1.2.3",
    "1.2.3.",
    ".1.2.3",
    "1..2.3",
    "01.2.3.4",
    "010.0.0.1",
    "08.0.0.1",
    "0x7f.0.0.1",
    "0X7F000001",
    "0x",
    "4294967295",
    "4294967296",
    "1.2.3.4 ",
    " 1.2.3.4",
    "1.2.3.4\n",
    "1.2.3.4x",
    "1.2.3.256",
    "1.2.65535",
    "1.2.65536",
    "1.16777215",
    "1.16777216",
    "+1.2.3.4",
    "-1.2.3.4",
    "1.2.3.4%lo",
    "127.0.0.1%1",
    "abc",
    "a.b",
    "localhost",
    "0xg",
    "1e3",
    "::",
    "::1",
    ":::",
    ":",
    "1::",
    "fe80::1",
    "fe80::1%lo",
    "fe80::1%1",
    "fe80::1%99",
    "fe80::1%nosuch",
    "fe80::1%",
    "fe80::1%0",
    "fe80::1%01",
    "fe80::1%4294967295",
    "fe80::1%4294967296",
    "fe80::1%-1",
    "fe80::1% 1",
    "fe80::1%1x",
    "ff02::1%lo",
    "ff01::1%lo",
    "ff05::1%lo",
    "ff05::1%3",
    "::1%lo",
    "::1%1",
    "::1%0",
    "2001:db8::1",
    "2001:db8::1%5",
    "2001:DB8:0:0:0:0:0:1",
    "::ffff:1.2.3.4",
    "::ffff:1.2.3.4%1",
    "::ffff:102:304",
    "::1.2.3.4",
    "::ffff:01.2.3.4",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:8:9",
    "1:2:3:4:5:6:7::",
    "12345::",
    "g::",
    "[::1]",
    "::1 ",
    "64:ff9b::1.2.3.4",
    "fe80::1%lo%lo",
    "%",
    "%lo",
    "::%lo",
    "1:2:3:4:5:6:1.2.3.4",
    "1111:2222:3333:4444:5555:6666:255.255.255.255%1",
    "0000000000000000000000000000000000000000::1",
};
static const char *const services[] = {
    NULL,         "",           "*",  "0",   "80",  "00080", "65535", "65536", "99999", "999999999",
    "1234567890", "4294967376", "-1", "+80", " 80", "80 ",   "0x50",  "80a",   "http",  "nosuchservice",
};
static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6, AF_UNIX, AF_NETLINK, -1, 99};
static const int types[] = {0,
                            SOCK_STREAM,
                            SOCK_DGRAM,
                            SOCK_RAW,
                            SOCK_SEQPACKET,
                            SOCK_DCCP,
                            SOCK_RDM,
                            SOCK_PACKET,
                            99,
                            -1,
                            SOCK_STREAM | SOCK_NONBLOCK};
static const int protocols[] = {
    0,           IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_SCTP, IPPROTO_UDPLITE, IPPROTO_DCCP,
    IPPROTO_RAW, 99,          -1};
static const int flag_sets[] = {0,
                                AI_PASSIVE,
                                AI_CANONNAME,
                                AI_NUMERICHOST,
                                AI_NUMERICSERV,
                                AI_V4MAPPED,
                                AI_ALL,
                                AI_V4MAPPED | AI_ALL,
                                AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
                                AI_CANONNAME | AI_V4MAPPED,
                                AI_CANONNAME | AI_NUMERICHOST | AI_V4MAPPED | AI_ALL | AI_NUMERICSERV,
                                AI_PASSIVE | AI_V4MAPPED,
                                AI_ADDRCONFIG,
                                AI_IDN,
                                0x4000000,
                                -1};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static unsigned asked;
static unsigned answered;

static bool same_row(const struct tdl_numeric *answer, uint32_t at, const struct addrinfo *row)
{
    const char *canonical = at == 0 ? answer->canonical : NULL;
    if (row->ai_socktype != answer->rows[at].socktype || row->ai_protocol != answer->rows[at].protocol) {
        return false;
    }
    if (row->ai_family != answer->address.any.sa_family || row->ai_addrlen != answer->length) {
        return false;
    }
    if (memcmp(row->ai_addr, &answer->address, answer->length) != 0) {
        return false;
    }
    if (row->ai_canonname == NULL || canonical == NULL) {
        return row->ai_canonname == canonical;
    }
    return strcmp(row->ai_canonname, canonical) == 0;
}

static bool same_answer(const struct tdl_numeric *answer, const struct addrinfo *rows)
{
    uint32_t at = 0;
    for (; rows != NULL; rows = rows->ai_next, at++) {
        if (at >= answer->count || !same_row(answer, at, rows)) {
            return false;
        }
    }
    return at == answer->count;
}

static void compare(const char *host, const char *service, const struct addrinfo *hints)
{
    struct tdl_numeric answer;
    struct addrinfo *rows = NULL;
    asked++;
    if (!tdl_numeric_forward(&answer, host, service, hints)) {
        return;
    }
    answered++;
    int eai = getaddrinfo(host, service, hints, &rows);
    bool same = eai == 0 && same_answer(&answer, rows);
    if (rows != NULL) {
        freeaddrinfo(rows);
    }
    ck_assert_msg(same, "host %s service %s family %d type %d protocol %d flags %d: libc says %d",
                  host ? host : "NULL", service ? service : "NULL", hints->ai_family, hints->ai_socktype,
                  hints->ai_protocol, hints->ai_flags, eai);
}

static void compare_types(const char *host, const char *service, struct addrinfo hints)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        for (size_t p = 0; p < COUNT(protocols); p++) {
            hints.ai_socktype = types[t];
            hints.ai_protocol = protocols[p];
            compare(host, service, &hints);
        }
    }
}

START_TEST(every_answer_is_the_one_of_libc)
{
    for (size_t h = 0; h < COUNT(hosts); h++) {
        for (size_t s = 0; s < COUNT(services); s++) {
            for (size_t f = 0; f < COUNT(families); f++) {
                for (size_t g = 0; g < COUNT(flag_sets); g++) {
                    struct addrinfo hints = {.ai_family = families[f], .ai_flags = flag_sets[g]};
                    compare_types(hosts[h], services[s], hints);
                }
            }
        }
    }
    ck_assert_uint_gt(asked, 2000000);
    ck_assert_uint_gt(answered, 50000);
}
END_TEST

static void random_host(char *text, size_t size)
{
    static const char alphabet[] = "0123456789abcfx.:%lo";
    size_t length = (size_t)rand() % (size - 1);
    for (size_t i = 0; i < length; i++) {
        text[i] = alphabet[(size_t)rand() % (sizeof alphabet - 1)];
    }
    text[length] = '\0';
}

START_TEST(random_hosts_are_answered_as_by_libc_or_refused)
{
    const char *seed = getenv("TDL_SEED");
    unsigned number = seed != NULL ? (unsigned)strtoul(seed, NULL, 10) : 20261130u;
    printf("seed %u\n", number);
    srand(number);
    for (int i = 0; i < 300000; i++) {
        char host[24];
        struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | (rand() % 2 ? AI_V4MAPPED : 0),
                                 .ai_socktype = SOCK_STREAM};
        hints.ai_family = families[rand() % 3];
        random_host(host, sizeof host);
        compare(host, "80", &hints);
    }
}
END_TEST

START_TEST(the_usual_hosts_are_not_refused)
{
    static const char *const usual[] = {"127.0.0.1", "0.0.0.0",   "10.1.2.3",   "::1",
                                        "::",        "fe80::1%1", "2001:db8::1"};
    struct addrinfo hints = {0};
    struct tdl_numeric answer;
    for (size_t i = 0; i < COUNT(usual); i++) {
        ck_assert_msg(tdl_numeric_forward(&answer, usual[i], "80", &hints), "%s", usual[i]);
        ck_assert_uint_eq(answer.count, 3);
    }
    hints.ai_family = AF_INET;
    hints.ai_flags = AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    ck_assert(tdl_numeric_forward(&answer, NULL, "80", &hints));
    ck_assert_uint_eq(answer.count, 1);
}
END_TEST

START_TEST(what_depends_on_the_machine_is_refused)
{
    struct tdl_numeric answer;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    ck_assert(!tdl_numeric_forward(&answer, NULL, "80", &hints));
    ck_assert(!tdl_numeric_forward(&answer, "localhost", "80", &hints));
    ck_assert(!tdl_numeric_forward(&answer, "127.0.0.1", "http", &hints));
    hints.ai_flags = AI_ADDRCONFIG;
    ck_assert(!tdl_numeric_forward(&answer, "127.0.0.1", "80", &hints));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numeric_forward");
    TCase *tcase = tcase_create("numeric_forward");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, every_answer_is_the_one_of_libc);
    tcase_add_test(tcase, random_hosts_are_answered_as_by_libc_or_refused);
    tcase_add_test(tcase, the_usual_hosts_are_not_refused);
    tcase_add_test(tcase, what_depends_on_the_machine_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

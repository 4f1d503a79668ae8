/* Goal: no request makes a numeric answer differ from libc's. Method: a request is read from bytes
 * (family, type, protocol, flags, service, host) and asked of both. Built with a fuzzer it is its target;
 * by itself it replays the files it is given, then mutates them from a seed (TDL_SEED) for TDL_FUZZ_RUNS
 * runs. With CANARY the answer is spoiled, which must be found. */
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "treadle/assert.h"
#include "treadle/numeric.h"

#define INPUT_MAX 96u
#define FILES_MAX 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6, AF_UNIX};
static const int types[] = {0, SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_DCCP};
static const int protocols[] = {0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_SCTP, IPPROTO_UDPLITE, 99};
static const int flag_bits[] = {AI_PASSIVE, AI_CANONNAME, AI_V4MAPPED, AI_ALL, AI_NUMERICSERV};

#define PICK(array, byte) (array)[(byte) % (sizeof(array) / sizeof((array)[0]))]

static bool same_rows(const struct tdl_numeric *answer, const struct addrinfo *row)
{
    uint32_t at = 0;
    for (; row != NULL && at < answer->count; row = row->ai_next, at++) {
        const char *canonical = at == 0 ? answer->canonical : NULL;
        if (row->ai_socktype != answer->rows[at].socktype || row->ai_protocol != answer->rows[at].protocol ||
            row->ai_addrlen != answer->length ||
            memcmp(row->ai_addr, &answer->address, answer->length) != 0) {
            return false;
        }
        if ((canonical == NULL) != (row->ai_canonname == NULL) ||
            (canonical != NULL && strcmp(canonical, row->ai_canonname) != 0)) {
            return false;
        }
    }
    return row == NULL && at == answer->count;
}

static void compare(const char *node, const char *service, struct addrinfo *hints)
{
    struct tdl_numeric answer;
    struct addrinfo *rows = NULL;
    if (!tdl_numeric_forward(&answer, node, service, hints)) {
        return;
    }
#ifdef CANARY
    answer.rows[0].protocol ^= 1;
#endif
    /* A name that was taken for a number is then an error, and no question to a server. */
    hints->ai_flags |= node != NULL ? AI_NUMERICHOST : 0;
    int eai = getaddrinfo(node, service, hints, &rows);
    bool same = eai == 0 && same_rows(&answer, rows);
    if (rows != NULL) {
        freeaddrinfo(rows);
    }
    if (!same) {
        printf("host '%s' service '%s' family %d type %d protocol %d flags %d: libc says %d\n",
               node ? node : "NULL", service ? service : "NULL", hints->ai_family, hints->ai_socktype,
               hints->ai_protocol, hints->ai_flags, eai);
        exit(1);
    }
}

/* Bytes 0 to 4 choose, the text up to ' ' is the service, the rest the host; '-' stands for none. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[INPUT_MAX + 1];
    struct addrinfo hints = {0};
    if (size < 5 || size > INPUT_MAX) {
        return 0;
    }
    hints.ai_family = PICK(families, data[0]);
    hints.ai_socktype = PICK(types, data[1]);
    hints.ai_protocol = PICK(protocols, data[2]);
    for (size_t i = 0; i < sizeof flag_bits / sizeof flag_bits[0]; i++) {
        hints.ai_flags |= (data[3] >> i & 1) != 0 ? flag_bits[i] : 0;
    }
    memcpy(text, data + 5, size - 5);
    text[size - 5] = '\0';
    char *host = strchr(text, ' ');
    if (host == NULL) {
        return 0;
    }
    *host++ = '\0';
    compare(strcmp(host, "-") != 0 ? host : NULL, strcmp(text, "-") != 0 ? text : NULL, &hints);
    return 0;
}

#ifndef TREADLE_FUZZER
struct input {
    uint8_t bytes[INPUT_MAX];
    size_t size;
};

static struct input corpus[FILES_MAX];
static size_t corpus_count;

static void load(const char *path)
{
    FILE *file = fopen(path, "rb");
    TDL_ASSERT(file != NULL && corpus_count < FILES_MAX);
    struct input *input = &corpus[corpus_count++];
    input->size = fread(input->bytes, 1, sizeof input->bytes, file);
    (void)fclose(file);
}

static void mutate(struct input *input)
{
    static const char alphabet[] = "0123456789abcdefx.:%-lo ";
    for (int changes = rand() % 4; changes >= 0; changes--) {
        size_t at = (size_t)rand() % (input->size + 1);
        if (rand() % 3 == 0 && input->size < INPUT_MAX) {
            memmove(input->bytes + at + 1, input->bytes + at, input->size - at);
            input->size++;
        } else if (rand() % 2 == 0 && at < input->size && input->size > 6) {
            memmove(input->bytes + at, input->bytes + at + 1, input->size - at - 1);
            input->size--;
            continue;
        }
        if (at < input->size) {
            input->bytes[at] = (uint8_t)(at < 5 ? rand() : alphabet[(size_t)rand() % (sizeof alphabet - 1)]);
        }
    }
}

static unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoul(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    unsigned long seed = setting("TDL_SEED", 20261130);
    unsigned long runs = setting("TDL_FUZZ_RUNS", 200000);
    printf("seed %lu\n", seed);
    srand((unsigned)seed);
    for (int i = 1; i < argc; i++) {
        load(argv[i]);
    }
    TDL_ASSERT(corpus_count > 0);
    for (size_t i = 0; i < corpus_count; i++) {
        (void)LLVMFuzzerTestOneInput(corpus[i].bytes, corpus[i].size);
    }
    for (unsigned long run = 0; run < runs; run++) {
        struct input input = corpus[(size_t)rand() % corpus_count];
        for (int i = rand() % 8; i >= 0; i--) {
            mutate(&input);
        }
        (void)LLVMFuzzerTestOneInput(input.bytes, input.size);
    }
    return 0;
}
#endif

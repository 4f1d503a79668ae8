/* Load generator: drives a server from one thread and prints one JSON line per sample.
 *
 *   treadle_load --port 8000 --mode echo --connections 64 --size 64 --samples 3 --pid 4711
 */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

uint64_t load_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

_Noreturn void load_fail(const char *what, int error)
{
    (void)fprintf(stderr, "treadle_load: %s%s%s\n", what, error != 0 ? ": " : "",
                  error != 0 ? strerror(error) : "");
    exit(1);
}

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) {
        load_fail("the server's CPU clock", errno);
    }
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void usage(FILE *out)
{
    (void)fputs(
        "usage: treadle_load [--mode echo|churn|idle|udp] [--host IP --port N | --unix PATH] [--tls]\n"
        "                    [--connections N] [--size BYTES] [--samples N] [--warmup N] [--seconds S]\n"
        "                    [--pid SERVER]\n"
        "idle opens the connections, prints a line, and holds them until standard input ends.\n",
        out);
}

static enum load_mode parse_mode(const char *text)
{
    static const char *const names[] = {"echo", "churn", "idle", "udp"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            return (enum load_mode)i;
        }
    }
    usage(stderr);
    exit(2);
}

static long parse_number(const char *text, long low, long high)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < low || value > high) {
        (void)fprintf(stderr, "treadle_load: %s is not a number from %ld to %ld\n", text, low, high);
        exit(2);
    }
    return value;
}

static void take_option(struct load_options *o, int letter)
{
    switch (letter) {
    case 'm':
        o->mode = parse_mode(optarg);
        break;
    case 'h':
        o->host = optarg;
        break;
    case 'p':
        o->port = (int)parse_number(optarg, 1, 65535);
        break;
    case 'u':
        o->unix_path = optarg;
        break;
    case 't':
        o->tls = true;
        break;
    case 's':
        o->size = (size_t)parse_number(optarg, 1, 1 << 22);
        break;
    case 'n':
        o->samples = (int)parse_number(optarg, 1, 1000000);
        break;
    case 'c':
        o->connections = (int)parse_number(optarg, 1, 1000000);
        break;
    case 'w':
        o->warmup = (int)parse_number(optarg, 0, 1000000);
        break;
    case 'P':
        o->pid = (int)parse_number(optarg, 1, 1 << 30);
        break;
    case 'T':
        o->seconds = strtod(optarg, NULL);
        break;
    case 'H':
        usage(stdout);
        exit(0);
    default:
        usage(stderr);
        exit(2);
    }
}

static void parse(struct load_options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"mode", 1, NULL, 'm'},    {"host", 1, NULL, 'h'},        {"port", 1, NULL, 'p'},
        {"unix", 1, NULL, 'u'},    {"tls", 0, NULL, 't'},         {"size", 1, NULL, 's'},
        {"samples", 1, NULL, 'n'}, {"connections", 1, NULL, 'c'}, {"warmup", 1, NULL, 'w'},
        {"pid", 1, NULL, 'P'},     {"seconds", 1, NULL, 'T'},     {"help", 0, NULL, 'H'},
        {NULL, 0, NULL, 0},
    };
    *o = (struct load_options){
        .mode = LOAD_ECHO, .host = "127.0.0.1", .connections = 1, .size = 64, .samples = 1, .seconds = 0.5};
    int c;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        take_option(o, c);
    }
    if (o->unix_path == NULL && o->port == 0) {
        usage(stderr);
        exit(2);
    }
}

static void resolve(struct load *load)
{
    const struct load_options *o = &load->options;
    if (o->unix_path != NULL) {
        struct sockaddr_un *address = (struct sockaddr_un *)&load->address;
        address->sun_family = AF_UNIX;
        if (strlen(o->unix_path) >= sizeof address->sun_path) {
            load_fail("the path is too long", 0);
        }
        memcpy(address->sun_path, o->unix_path, strlen(o->unix_path) + 1);
        load->address_length = sizeof *address;
        return;
    }
    struct sockaddr_in *address = (struct sockaddr_in *)&load->address;
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)o->port);
    if (inet_pton(AF_INET, o->host, &address->sin_addr) != 1) {
        load_fail("the host must be a numeric IPv4 address", 0);
    }
    load->address_length = sizeof *address;
}

/* The kernel lends files up to the hard limit; idle connections need them. */
static void lift_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void open_all(struct load *load)
{
    size_t count = (size_t)load->options.connections;
    size_t size = load->options.size;
    load->incoming_size = size < 65536 ? 65536 : size;
    load->conns = calloc(count, sizeof *load->conns);
    load->outgoing = malloc(256 * size);
    load->incoming = malloc(load->incoming_size);
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (load->conns == NULL || load->outgoing == NULL || load->incoming == NULL || load->epoll < 0) {
        load_fail("start", ENOMEM);
    }
    for (size_t i = 0; i < 256; i++) {
        (void)memset(load->outgoing + i * size, (int)i, size);
    }
    if (load->options.tls) {
        load->tls = load_tls_new();
    }
    for (size_t i = 0; i < count; i++) {
        if (load->options.mode == LOAD_UDP) {
            load_datagram_open(load, &load->conns[i]);
        } else {
            load_stream_open(load, &load->conns[i]);
        }
    }
}

static void turn(struct load *load, int timeout_ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(load->epoll, events, 256, timeout_ms);
    if (n < 0 && errno != EINTR) {
        load_fail("epoll_wait", errno);
    }
    for (int i = 0; i < n; i++) {
        if (load->options.mode == LOAD_UDP) {
            load_datagram_event(events[i].data.ptr);
        } else {
            load_stream_event(events[i].data.ptr, events[i].events);
        }
    }
}

static void sample(struct load *load, clockid_t server, bool counts)
{
    uint64_t ops = load->ops;
    uint64_t lost = load->lost;
    uint64_t client_cpu = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t server_cpu = load->options.pid != 0 ? cpu_ns(server) : 0;
    uint64_t start = load_now_ns();
    uint64_t span = (uint64_t)(load->options.seconds * 1e9);
    uint64_t sweep = start + 100000000U;
    uint64_t now = start;
    /* On a crowded machine the server may not run at all for a while; a sample without an operation says
     * nothing. */
    uint64_t patience = span + UINT64_C(10000000000);
    while ((now = load_now_ns()) - start < span || (load->ops == ops && now - start < patience)) {
        turn(load, 20);
        if (load->options.mode == LOAD_UDP && now > sweep) {
            load_datagram_sweep(load);
            sweep = now + 100000000U;
        }
    }
    server_cpu = load->options.pid != 0 ? cpu_ns(server) - server_cpu : 0;
    client_cpu = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - client_cpu;
    ops = load->ops - ops;
    if (counts) {
        (void)printf("{\"ops\": %" PRIu64 ", \"wall_ns\": %" PRIu64 ", \"server_cpu_ns\": %" PRIu64
                     ", \"client_cpu_ns\": %" PRIu64 ", \"lost\": %" PRIu64 "}\n",
                     ops, now - start, server_cpu, client_cpu, load->lost - lost);
        (void)fflush(stdout);
    }
}

static void hold(struct load *load)
{
    uint64_t deadline = load_now_ns() + UINT64_C(30000000000);
    while (load->ops < (uint64_t)load->options.connections) {
        turn(load, 100);
        if (load_now_ns() > deadline) {
            load_fail("the server did not answer every connection within 30 s", 0);
        }
    }
    (void)printf("{\"connected\": %d}\n", load->options.connections);
    (void)fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

static void close_all(struct load *load)
{
    for (int i = 0; i < load->options.connections; i++) {
        load_tls_free(&load->conns[i]);
        (void)close(load->conns[i].fd);
    }
    load_tls_delete(load->tls);
    free(load->conns);
    free(load->outgoing);
    free(load->incoming);
    (void)close(load->epoll);
}

int main(int argc, char **argv)
{
    struct load load = {.epoll = -1};
    clockid_t server = CLOCK_PROCESS_CPUTIME_ID;
    parse(&load.options, argc, argv);
    if (load.options.pid != 0 && clock_getcpuclockid(load.options.pid, &server) != 0) {
        load_fail("no such process", 0);
    }
    resolve(&load);
    lift_file_limit();
    open_all(&load);
    if (load.options.mode == LOAD_IDLE) {
        hold(&load);
    } else {
        for (int i = 0; i < load.options.warmup + load.options.samples; i++) {
            sample(&load, server, i >= load.options.warmup);
        }
    }
    close_all(&load);
    return 0;
}

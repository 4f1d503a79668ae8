/* What lookups cost on pool and resolve alone. Cases with a blocked resolver need the project's preload
 * library. */
#include "common/bench.h"
#include "lookups/asker.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "treadle/assert.h"
#include "treadle/inbox.h"
#include "treadle/lookup.h"
#include "treadle/numeric.h"
#include "treadle/pool.h"
#include "treadle/wake.h"

static const char *host = "localhost";
static const char *numeric_host = "127.0.0.1";
static long slots; /* 0: as many as the machine should have */
static long concurrent = 32;

static int ask_host(struct asker *a, struct query *q)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int code = tdl_lookup_forward(&q->lookup, host, "80", &hints, NULL);
    return code != 0 ? code : asker_submit(a, q);
}

static int ask_numeric(struct asker *a, struct query *q)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    int code = tdl_lookup_forward(&q->lookup, numeric_host, "80", &hints, NULL);
    return code != 0 ? code : asker_submit(a, q);
}

static int ask_reverse(struct asker *a, struct query *q)
{
    const struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int code = tdl_lookup_reverse(&q->lookup, (const struct sockaddr *)&in, sizeof in,
                                  NI_NUMERICHOST | NI_NUMERICSERV, NULL);
    return code != 0 ? code : asker_submit(a, q);
}

static int take_stream(ask_fn ask, size_t total, size_t at_once, struct tdl_sample *out)
{
    struct asker a;
    int code = asker_open(&a, slots);
    if (code != 0) {
        return code;
    }
    code = asker_stream(&a, ask, at_once, at_once); /* starts the threads and warms libc up */
    struct tdl_bench_clock begin = tdl_bench_begin();
    if (code == 0) {
        code = asker_stream(&a, ask, total, at_once);
    }
    tdl_bench_end(&begin, (double)total, out);
    asker_close(&a);
    return code;
}

static int take_forward(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_stream(ask_host, tdl_bench_count(bench, 10000, 20), 1, out);
}

static int take_forward_many(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_stream(ask_host, tdl_bench_count(bench, 20000, 64), (size_t)concurrent, out);
}

static int take_reverse(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_stream(ask_reverse, tdl_bench_count(bench, 10000, 20), 1, out);
}

static int take_reverse_many(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_stream(ask_reverse, tdl_bench_count(bench, 20000, 64), (size_t)concurrent, out);
}

static int take_numeric_native(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_stream(ask_numeric, tdl_bench_count(bench, 10000, 20), 1, out);
}

static int take_libc_forward(const struct tdl_bench *bench, struct tdl_sample *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    size_t total = tdl_bench_count(bench, 10000, 20);
    struct tdl_bench_clock begin = tdl_bench_begin();
    for (size_t i = 0; i < total; i++) {
        struct addrinfo *rows;
        int eai = getaddrinfo(host, "80", &hints, &rows);
        if (eai != 0) {
            return tdl_eai_status(eai);
        }
        freeaddrinfo(rows);
    }
    tdl_bench_end(&begin, (double)total, out);
    return 0;
}

static int take_numeric_fast(const struct tdl_bench *bench, struct tdl_sample *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    size_t total = tdl_bench_count(bench, 1000000, 1000);
    uint32_t rows = 0;
    struct tdl_bench_clock begin = tdl_bench_begin();
    for (size_t i = 0; i < total; i++) {
        struct tdl_numeric answer;
        if (!tdl_numeric_forward(&answer, numeric_host, "80", &hints)) {
            return -ENOTSUP;
        }
        rows += answer.count;
    }
    tdl_bench_end(&begin, (double)total, out);
    return rows == total ? 0 : -EPROTO;
}

static int take_reverse_fast(const struct tdl_bench *bench, struct tdl_sample *out)
{
    const struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    size_t total = tdl_bench_count(bench, 1000000, 1000);
    struct tdl_bench_clock begin = tdl_bench_begin();
    for (size_t i = 0; i < total; i++) {
        char name[TDL_NUMERIC_HOST_MAX];
        char service[TDL_NUMERIC_SERVICE_MAX];
        if (!tdl_numeric_reverse(name, service, (const struct sockaddr *)&in, sizeof in,
                                 NI_NUMERICHOST | NI_NUMERICSERV)) {
            return -ENOTSUP;
        }
    }
    tdl_bench_end(&begin, (double)total, out);
    return 0;
}

/* Jobs of the other class that stay until they are let go. */

struct busy {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned inside;
    bool let_go;
};

struct busy_job {
    struct tdl_job job;
    struct tdl_link done;
    struct busy *busy;
};

static void busy_work(struct tdl_job *job)
{
    struct busy *busy = TDL_CONTAINER_OF(job, struct busy_job, job)->busy;
    (void)pthread_mutex_lock(&busy->lock);
    busy->inside++;
    (void)pthread_cond_broadcast(&busy->changed);
    while (!busy->let_go) {
        (void)pthread_cond_wait(&busy->changed, &busy->lock);
    }
    (void)pthread_mutex_unlock(&busy->lock);
}

static int fill_workers(struct asker *a, struct busy *busy, struct busy_job jobs[WORKERS])
{
    for (unsigned i = 0; i < WORKERS; i++) {
        jobs[i].busy = busy;
        tdl_job_init(&jobs[i].job, busy_work, NULL);
        int code = tdl_pool_submit(a->pool, &jobs[i].job, CLASS_WORK, &a->inbox, &jobs[i].done);
        if (code != 0) {
            return code;
        }
    }
    (void)pthread_mutex_lock(&busy->lock);
    while (busy->inside < WORKERS) {
        (void)pthread_cond_wait(&busy->changed, &busy->lock);
    }
    (void)pthread_mutex_unlock(&busy->lock);
    return 0;
}

static int take_saturated(const struct tdl_bench *bench, struct tdl_sample *out)
{
    struct busy busy = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct busy_job jobs[WORKERS];
    size_t total = tdl_bench_count(bench, 2000, 20);
    struct asker a;
    int code = asker_open(&a, slots);
    if (code != 0) {
        return code;
    }
    code = fill_workers(&a, &busy, jobs);
    if (code == 0) {
        code = asker_stream(&a, ask_host, 1, 1);
    }
    struct tdl_bench_clock begin = tdl_bench_begin();
    if (code == 0) {
        code = asker_stream(&a, ask_host, total, 1);
    }
    tdl_bench_end(&begin, (double)total, out);
    out->value = out->wall_us;
    (void)pthread_mutex_lock(&busy.lock);
    busy.let_go = true;
    (void)pthread_cond_broadcast(&busy.changed);
    (void)pthread_mutex_unlock(&busy.lock);
    for (unsigned i = 0; i < WORKERS; i++) {
        (void)asker_next(&a);
    }
    asker_close(&a);
    return code;
}

#define BURST 1000u

static int take_burst(bool threads, struct tdl_sample *out)
{
    struct tdl_pool_counts counts;
    struct asker a;
    int code = asker_open(&a, slots);
    if (code != 0) {
        return code;
    }
    struct tdl_bench_clock begin = tdl_bench_begin();
    code = asker_stream(&a, ask_host, BURST, BURST);
    tdl_bench_end(&begin, BURST, out);
    tdl_pool_counts(a.pool, &counts);
    out->value = threads ? (double)counts.threads_started : out->wall_us * BURST / 1e3;
    asker_close(&a);
    return code;
}

static int take_burst_wall(const struct tdl_bench *bench, struct tdl_sample *out)
{
    (void)bench;
    return take_burst(false, out);
}

static int take_burst_threads(const struct tdl_bench *bench, struct tdl_sample *out)
{
    (void)bench;
    return take_burst(true, out);
}

/* The preload library's controls, when it is there. */

typedef void (*resolver_fn)(void);
typedef void (*resolver_wait_fn)(unsigned);

static bool find_control(const char *name, void *control)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(control, &found, sizeof found);
    return found != NULL;
}

static void forget_query(struct tdl_lookup *lookup)
{
    free(TDL_CONTAINER_OF(lookup, struct query, lookup));
}

static int ask_and_forget(struct asker *a, unsigned count)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    for (unsigned i = 0; i < count; i++) {
        struct query *q = calloc(1, sizeof *q);
        if (q == NULL) {
            return -ENOMEM;
        }
        int code = tdl_lookup_forward(&q->lookup, host, "80", &hints, forget_query);
        if (code == 0) {
            code = asker_submit(a, q);
        }
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

static int take_close_blocked(const struct tdl_bench *bench, struct tdl_sample *out)
{
    resolver_fn hold;
    resolver_fn let_go;
    resolver_wait_fn wait_inside;
    struct asker a;
    (void)bench;
    if (!find_control("resolver_hold", &hold) || !find_control("resolver_let_go", &let_go) ||
        !find_control("resolver_wait_inside", &wait_inside)) {
        out->error =
            "give the resolver that blocks: LD_PRELOAD=build/dev/tests/preload/libtreadle_resolver.so";
        return -ENOTSUP;
    }
    int code = asker_open(&a, slots);
    if (code != 0) {
        return code;
    }
    hold();
    code = ask_and_forget(&a, 100);
    if (code == 0) {
        wait_inside(slots > 0 ? (unsigned)slots : tdl_lookup_slots());
    }
    struct tdl_bench_clock begin = tdl_bench_begin();
    asker_close(&a);
    tdl_bench_end(&begin, 1, out);
    out->value = out->wall_us;
    let_go();
    while (tdl_pool_alive() != 0) {
        (void)sched_yield();
    }
    return code;
}

static const struct tdl_bench_case cases[] = {
    {"libc_forward", "getaddrinfo(3) called directly, the limit", NULL, take_libc_forward},
    {"forward", "forward, one after the other", NULL, take_forward},
    {"forward_32", "forward, 32 at once", NULL, take_forward_many},
    {"reverse", "reverse numeric on a thread, one after the other", NULL, take_reverse},
    {"reverse_32", "reverse numeric on a thread, 32 at once", NULL, take_reverse_many},
    {"reverse_fast", "reverse numeric, answered inline", NULL, take_reverse_fast},
    {"numeric_fast", "numeric host, answered inline", NULL, take_numeric_fast},
    {"numeric_native", "numeric host, on a thread", NULL, take_numeric_native},
    {"saturated", "latency while every worker of another class is busy", "wall us", take_saturated},
    {"burst_wall", "burst of 1,000 on a new pool", "ms", take_burst_wall},
    {"burst_threads", "threads that a burst of 1,000 starts", "threads", take_burst_threads},
    {"close_blocked", "close while libc blocks in every slot (with LD_PRELOAD)", "wall us",
     take_close_blocked},
};

static const struct tdl_option options[] = {
    {.name = "host", .help = "the name that is looked up", .text = &host},
    {.name = "numeric-host",
     .help = "the address that is looked up, IPv4 or IPv6",
     .text = &numeric_host,
     .value_name = "ADDRESS"},
    {.name = "slots",
     .help = "lookup slots; 0 is min(32, CPUs + 4)",
     .number = &slots,
     .low = 0,
     .high = 1000},
    {.name = "concurrent",
     .help = "lookups at once in the _32 cases",
     .number = &concurrent,
     .low = 1,
     .high = 10000},
};

static int check(const struct tdl_bench *bench)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    unsigned char address[sizeof(struct in6_addr)];
    struct addrinfo *rows;
    char text[256];
    if (inet_pton(AF_INET, numeric_host, address) != 1 && inet_pton(AF_INET6, numeric_host, address) != 1) {
        return tdl_options_refuse(bench->tool, "numeric-host", "an IPv4 or IPv6 address", numeric_host);
    }
    int eai = getaddrinfo(host, "80", &hints, &rows);
    if (eai == 0) {
        freeaddrinfo(rows);
        return 0;
    }
    (void)snprintf(text, sizeof text, "a name that can be looked up (%s)", gai_strerror(eai));
    return tdl_options_refuse(bench->tool, "host", text, host);
}

int main(int argc, char **argv)
{
    struct tdl_bench bench = {
        .tool = "dns",
        .about = "what lookups cost on pool and resolve alone",
        .cases = cases,
        .case_count = sizeof cases / sizeof cases[0],
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .check = check,
    };
    return tdl_bench_main(&bench, argc, argv);
}

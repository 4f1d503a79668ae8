/* What a loop's turn does to a connection pool behind threads: drivers post queries from their own
 * threads, each takes a connection out of a small pool, asks PostgreSQL, and puts it back into an idle
 * queue that discards what does not fit. The pool behaves as SQLAlchemy's queue pool on asyncio does. */
#include "churn/churn.h"
#include "common/bench.h"
#include "common/postgres.h"
#include "common/sessions.h"

#include <errno.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/host.h"

#define WARMUP_SHARE 5

static const char *const turns[] = {"generation", "quiescent", NULL};

/* The query waits on the server, as for a disk: what keeps the loop busy all the time bunches answers in
 * any turn. */
struct churn_options churn_options = {
    .turn = "generation",
    .query = "SELECT count(*) FROM pg_class, pg_sleep(0.003)",
    .pool_size = 4,
    .overflow_max = 2,
    .threads = 8,
    .requests = 8000,
    .queries = 2,
    .per_checkout = 1,
};

static struct tdl_postgres own_server;

/* Cases: three figures of the same runs */

struct figures {
    struct tdl_sample sample;
    double connections; /* per 1,000 requests */
    char error[160];
};

static void measure(struct churn *churn, struct tdl_sessions *counter, struct figures *out, size_t each)
{
    long before = tdl_sessions_count(counter);
    size_t warm_each = each / WARMUP_SHARE + 1;
    churn->warm = warm_each * (size_t)churn_options.threads;
    churn_run_drivers(churn, warm_each + each);
    tdl_bench_end(&churn->begin, (double)(each * (size_t)churn_options.threads), &out->sample);
    struct connection *all = churn->all;
    churn_close_connections(churn);
    /* A turn drops the items that the closed watches left behind. */
    tdl_sched_stop(&churn->host.sched);
    churn_run_turns(&churn->host);
    churn_forget_connections(all);
    long sessions = tdl_sessions_count(counter) - before;
    if (churn->error[0] == '\0' && counter->error[0] == '\0' && sessions != (long)churn->opened) {
        (void)snprintf(churn->error, sizeof churn->error,
                       "the pool opened %zu connections, pg_stat_database counted %ld", churn->opened,
                       sessions);
    }
    out->connections = (double)(sessions - (long)churn->kept) * 1e3 / out->sample.ops;
}

static void run_once(const struct tdl_bench *bench, struct figures *out)
{
    const struct tdl_wake_options options = {.spin_ns = (uint64_t)churn_options.spin_us * 1000U};
    struct churn churn = {.alive = 0};
    struct tdl_sessions counter = {.pg = NULL};
    size_t each = (bench->smoke ? 80U : (size_t)churn_options.requests) / (size_t)churn_options.threads;
    churn.idle_end = &churn.idle;
    churn.waiting_end = &churn.waiting;
    if (tdl_epoll_host_open(&churn.host, &options) != 0) {
        churn_fail(&churn, "cannot open a wake", NULL);
    } else {
        if (churn_open_drivers(&churn) == 0) {
            if (tdl_sessions_open(&counter, churn_options.dsn) == 0) {
                measure(&churn, &counter, out, each == 0 ? 1 : each);
            }
            tdl_sessions_close(&counter);
            churn_close_drivers(&churn);
        } else {
            churn_fail(&churn, "cannot open the drivers' wakes", NULL);
        }
        tdl_epoll_host_close(&churn.host);
    }
    (void)snprintf(out->error, sizeof out->error, "%s", churn.error[0] != '\0' ? churn.error : counter.error);
}

enum { CONNECTIONS, CPU, RATE, FIGURES };

/* Sees to a server; returns what is wrong, or NULL. */
static const char *prepare(void)
{
    if (churn_options.dsn == NULL && own_server.error == NULL && tdl_postgres_start(&own_server) == 0) {
        churn_options.dsn = own_server.dsn;
    }
    return own_server.error;
}

/* The n-th sample of each case comes from the n-th run. */
static int take(const struct tdl_bench *bench, int figure, struct tdl_sample *out)
{
    static struct figures *runs;
    static size_t made, seen[FIGURES];
    size_t n = seen[figure]++;
    out->error = prepare();
    if (out->error != NULL) {
        return -ENOTSUP;
    }
    if (n == made) {
        runs = realloc(runs, (made + 1) * sizeof *runs);
        TDL_ASSERT(runs != NULL);
        runs[made] = (struct figures){.connections = 0};
        run_once(bench, &runs[made++]);
    }
    const struct figures *run = &runs[n];
    static char error[sizeof run->error];
    if (run->error[0] != '\0') {
        (void)snprintf(error, sizeof error, "%s", run->error);
        out->error = error;
        return -EIO;
    }
    out->ops = run->sample.ops;
    out->wall_us = run->sample.wall_us;
    out->cpu_us = run->sample.cpu_us;
    out->value = figure == CONNECTIONS ? run->connections : figure == CPU ? out->cpu_us : 1e6 / out->wall_us;
    return 0;
}

static int take_connections(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take(bench, CONNECTIONS, out);
}

static int take_cpu(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take(bench, CPU, out);
}

static int take_rate(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take(bench, RATE, out);
}

static const struct tdl_bench_case cases[] = {
    {"churn_connections", "connections opened, by pg_stat_database", "per 1,000 requests", take_connections},
    {"churn_cpu", "CPU of all threads per request", NULL, take_cpu},
    {"churn_rate", "requests answered", "requests/s", take_rate},
};

static const struct tdl_option options[] = {
    {.name = "dsn",
     .help = "libpq connection string; without it a server is started",
     .text = &churn_options.dsn,
     .value_name = "DSN"},
    {.name = "turn",
     .help = "what a turn runs: one generation, or until nothing is ready",
     .text = &churn_options.turn,
     .choices = turns},
    {.name = "spin-us",
     .help = "how long the wake watches its word before it sleeps",
     .unit = "us",
     .number = &churn_options.spin_us,
     .low = 0,
     .high = 1000000},
    {.name = "pool", .help = "connections kept", .number = &churn_options.pool_size, .low = 1, .high = 1000},
    {.name = "overflow",
     .help = "connections beyond those",
     .number = &churn_options.overflow_max,
     .low = 0,
     .high = 1000},
    {.name = "threads",
     .help = "driver threads, one request each at a time",
     .number = &churn_options.threads,
     .low = 1,
     .high = 1000},
    {.name = "requests",
     .help = "requests per sample",
     .number = &churn_options.requests,
     .low = 1,
     .high = 100000000},
    {.name = "queries",
     .help = "queries per request",
     .number = &churn_options.queries,
     .low = 1,
     .high = 1000},
    {.name = "per-checkout",
     .help = "queries that are posted together and asked on one connection",
     .number = &churn_options.per_checkout,
     .low = 1,
     .high = 1000},
    {.name = "query", .help = "what is asked", .text = &churn_options.query, .value_name = "SQL"},
    {.name = "think-us",
     .help = "pause of a driver between two requests",
     .unit = "us",
     .number = &churn_options.think_us,
     .low = 0,
     .high = 10000000},
    {.name = "work-us",
     .help = "CPU that each step of a request takes on the loop",
     .unit = "us",
     .number = &churn_options.work_us,
     .low = 0,
     .high = 1000000},
};

/* A server that is not there should be said before anything is measured. */
static int check(const struct tdl_bench *bench)
{
    char text[256];
    if (churn_options.dsn == NULL) {
        return 0;
    }
    PGconn *pg = PQconnectdb(churn_options.dsn);
    int code = 0;
    if (PQstatus(pg) != CONNECTION_OK) {
        const char *why = PQerrorMessage(pg);
        (void)snprintf(text, sizeof text, "a server that answers (%.*s)", (int)strcspn(why, "\n"), why);
        code = tdl_options_refuse(bench->tool, "dsn", text, churn_options.dsn);
    }
    PQfinish(pg);
    return code;
}

static void cleanup(void)
{
    tdl_postgres_stop(&own_server);
}

int main(int argc, char **argv)
{
    struct tdl_bench bench = {
        .tool = "pool_churn",
        .about = "connections that a pool opens behind threads, by the shape of the loop's turn",
        .cases = cases,
        .case_count = sizeof cases / sizeof *cases,
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .check = check,
        .cleanup = cleanup,
    };
    return tdl_bench_main(&bench, argc, argv);
}

/* What a loop's turn does to a connection pool behind threads: drivers post queries from their own threads, each
 * takes a connection out of a small pool, asks PostgreSQL, and puts it back into an idle queue that discards what
 * does not fit. The pool behaves as SQLAlchemy's queue pool on asyncio does. */
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

static const char *dsn;
static const char *turn = "generation";
/* Waits on the server, as for a disk: what keeps the loop busy all the time bunches answers in any turn. */
static const char *query = "SELECT count(*) FROM pg_class, pg_sleep(0.003)";
static long spin_us;
static long pool_size = 4;
static long overflow_max = 2;
static long threads = 8;
static long requests = 8000;
static long queries = 2;
static long per_checkout = 1;
static long think_us;
static long work_us;

static struct tdl_postgres own_server;

enum connection_state {
    CONNECTION_OPENING, /* handshake under way, for a request */
    CONNECTION_BUSY,    /* with a request */
    CONNECTION_IDLE,    /* in the idle queue */
    CONNECTION_CLOSED   /* kept for a queued item of its watch until the run ends */
};

struct connection {
    struct tdl_epoll_watch watch;
    struct churn *churn;
    struct connection *next; /* in the list of all */
    struct connection *next_idle;
    struct request *request;
    PGconn *pg;
    uint32_t events;
    enum connection_state state;
};

/* One driver's request, or the part of it that one connection serves; it is posted again and again. `item` runs each
 * step of it on the loop. */
struct request {
    struct tdl_item item;
    struct driver *driver;
    struct connection *connection;
    struct request *next_waiting;
    long queries_left;
    bool ends; /* the part that is the request's last */
};

struct driver {
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct churn *churn;
    struct request request;
    struct tdl_link reply;
    struct tdl_item farewell;
    size_t count;
    pthread_t thread;
};

struct churn {
    struct tdl_epoll_host host;
    struct connection *all;
    struct connection *idle, **idle_end;
    struct request *waiting, **waiting_end;
    struct driver *drivers;
    long idle_count;
    long alive; /* connections opening, busy or idle */
    size_t opened;
    size_t answered;
    size_t warm; /* requests before the measurement, which begins under way: a pause would empty the pool */
    size_t kept; /* connections opened until then */
    struct tdl_bench_clock begin;
    long running; /* drivers not done yet */
    char error[160];
};

static void fail(struct churn *churn, const char *what, const PGconn *pg)
{
    const char *why = pg == NULL ? "" : PQerrorMessage(pg);
    if (churn->error[0] == '\0') {
        (void)snprintf(churn->error, sizeof churn->error, "%s: %.*s", what, (int)strcspn(why, "\n"), why);
    }
}

/* Connections */

static void on_ready(struct tdl_item *item);

static int watch(struct connection *c, uint32_t events)
{
    if (c->events == events) {
        return 0;
    }
    int code = c->events == 0 ? -ENOENT : tdl_epoll_host_rewatch(&c->churn->host, &c->watch, events);
    /* While it connects, libpq may close its descriptor, which takes it out of the poller, and open another. */
    if (code == -ENOENT || code == -EBADF) {
        code = tdl_epoll_host_watch(&c->churn->host, &c->watch, PQsocket(c->pg), events);
    }
    c->events = code == 0 ? events : c->events;
    return code;
}

static void close_connection(struct connection *c)
{
    if (c->events != 0) {
        tdl_epoll_host_unwatch(&c->churn->host, &c->watch);
    }
    PQfinish(c->pg);
    c->pg = NULL;
    c->state = CONNECTION_CLOSED;
    c->churn->alive--;
}

/* The step of a request goes on in a later generation, as a task does when its future is done. */
static void resume(struct request *r)
{
    if (r->item.link.state == TDL_ITEM_IDLE) {
        tdl_sched_push(&r->driver->churn->host.sched, &r->item);
    }
}

static void open_connection(struct churn *churn, struct request *r)
{
    struct connection *c = calloc(1, sizeof *c);
    TDL_ASSERT(c != NULL);
    *c = (struct connection){.churn = churn, .next = churn->all, .request = r, .state = CONNECTION_OPENING};
    tdl_item_init(&c->watch.item, on_ready);
    churn->all = c;
    churn->alive++;
    churn->opened++;
    r->connection = c;
    c->pg = PQconnectStart(dsn);
    if (c->pg == NULL || PQstatus(c->pg) == CONNECTION_BAD || watch(c, EPOLLOUT) != 0) {
        fail(churn, "cannot connect", c->pg);
        close_connection(c);
        resume(r);
    }
}

static void go_on_opening(struct connection *c)
{
    PostgresPollingStatusType status = PQconnectPoll(c->pg);
    if (PQsocket(c->pg) != c->watch.fd) {
        c->events = 0;
    }
    if (status == PGRES_POLLING_READING && watch(c, EPOLLIN) == 0) {
        return;
    }
    if (status == PGRES_POLLING_WRITING && watch(c, EPOLLOUT) == 0) {
        return;
    }
    if (status == PGRES_POLLING_OK && PQsetnonblocking(c->pg, 1) == 0 && watch(c, EPOLLIN) == 0) {
        c->state = CONNECTION_BUSY;
    } else {
        fail(c->churn, "cannot connect", c->pg);
        close_connection(c);
    }
    resume(c->request);
}

/* True when the answer is complete, or never will be. */
static bool take_answer(struct connection *c)
{
    PGresult *result;
    if (PQconsumeInput(c->pg) == 0) {
        fail(c->churn, "connection lost", c->pg);
        return true;
    }
    while (PQisBusy(c->pg) == 0) {
        result = PQgetResult(c->pg);
        if (result == NULL) {
            return true;
        }
        if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK) {
            fail(c->churn, "--query failed", c->pg);
        }
        PQclear(result);
    }
    return false;
}

static void on_ready(struct tdl_item *item)
{
    struct connection *c = TDL_CONTAINER_OF(item, struct connection, watch.item);
    if (c->state == CONNECTION_OPENING) {
        go_on_opening(c);
    } else if (c->state == CONNECTION_BUSY) {
        int unsent = PQflush(c->pg);
        if (unsent >= 0) {
            unsent = watch(c, unsent == 0 ? EPOLLIN : EPOLLIN | EPOLLOUT);
        }
        if (unsent < 0) {
            fail(c->churn, "cannot send", c->pg);
        }
        if (unsent < 0 || take_answer(c)) {
            resume(c->request);
        }
    } else if (c->state == CONNECTION_IDLE && PQconsumeInput(c->pg) == 0) {
        fail(c->churn, "idle connection lost", c->pg);
        tdl_epoll_host_unwatch(&c->churn->host, &c->watch);
        c->events = 0;
    }
}

/* The pool */

static bool check_out(struct churn *churn, struct request *r)
{
    struct connection *c = churn->idle;
    if (c != NULL) {
        churn->idle = c->next_idle;
        if (churn->idle == NULL) {
            churn->idle_end = &churn->idle;
        }
        churn->idle_count--;
        c->state = CONNECTION_BUSY;
        c->request = r;
        r->connection = c;
        return true;
    }
    if (churn->alive < pool_size + overflow_max) {
        open_connection(churn, r);
    } else {
        r->next_waiting = NULL;
        *churn->waiting_end = r;
        churn->waiting_end = &r->next_waiting;
    }
    return false;
}

/* A waiter is only told that something was put back; whoever comes first takes it. */
static void wake_waiter(struct churn *churn)
{
    struct request *r = churn->waiting;
    if (r == NULL) {
        return;
    }
    churn->waiting = r->next_waiting;
    if (churn->waiting == NULL) {
        churn->waiting_end = &churn->waiting;
    }
    resume(r);
}

static void check_in(struct churn *churn, struct connection *c)
{
    c->request = NULL;
    if (churn->idle_count == pool_size) {
        if (c->state != CONNECTION_CLOSED) {
            close_connection(c);
        }
        return;
    }
    if (c->state != CONNECTION_CLOSED && PQstatus(c->pg) == CONNECTION_OK) {
        c->state = CONNECTION_IDLE;
        c->next_idle = NULL;
        *churn->idle_end = c;
        churn->idle_end = &c->next_idle;
        churn->idle_count++;
    } else if (c->state != CONNECTION_CLOSED) {
        close_connection(c);
    }
    wake_waiter(churn);
}

/* Requests */

/* What a step costs the loop's thread besides the query, as an interpreter's task does. */
static void work(void)
{
    if (work_us == 0) {
        return;
    }
    uint64_t until_ns = tdl_clock_ns() + (uint64_t)work_us * 1000U;
    while (tdl_clock_ns() < until_ns) {
    }
}

static bool ask(struct request *r)
{
    struct connection *c = r->connection;
    int unsent = PQsendQuery(c->pg, query) == 1 ? PQflush(c->pg) : -1;
    if (unsent == 1) {
        unsent = watch(c, EPOLLIN | EPOLLOUT);
    }
    if (unsent < 0) {
        fail(c->churn, "cannot send", c->pg);
    }
    return unsent >= 0;
}

static void run_request(struct tdl_item *item)
{
    struct request *r = TDL_CONTAINER_OF(item, struct request, item);
    struct churn *churn = r->driver->churn;
    work();
    if (r->connection == NULL && !check_out(churn, r)) {
        return;
    }
    if (r->queries_left > 0 && r->connection->state == CONNECTION_BUSY && churn->error[0] == '\0') {
        r->queries_left--;
        if (ask(r)) {
            return;
        }
    }
    check_in(churn, r->connection);
    r->connection = NULL;
    if (r->ends && ++churn->answered == churn->warm) {
        churn->kept = churn->opened;
        churn->begin = tdl_bench_begin();
    }
    (void)tdl_inbox_post(&r->driver->inbox, &r->driver->reply);
}

/* Drivers */

static void await_reply(struct driver *d)
{
    while (tdl_inbox_take(&d->inbox) == NULL) {
        tdl_wake_park_begin(&d->wake); /* MO-1: announced before the inbox is looked at */
        if (tdl_inbox_is_empty(&d->inbox)) {
            (void)tdl_wake_wait(&d->wake, UINT64_MAX);
        }
        (void)tdl_wake_park_end(&d->wake);
    }
}

static void think(struct driver *d)
{
    uint64_t until_ns = tdl_clock_ns() + (uint64_t)think_us * 1000U;
    for (uint64_t now_ns; (now_ns = tdl_clock_ns()) < until_ns;) {
        tdl_wake_park_begin(&d->wake);
        (void)tdl_wake_wait(&d->wake, until_ns - now_ns);
        (void)tdl_wake_park_end(&d->wake);
    }
}

static void *drive(void *arg)
{
    struct driver *d = arg;
    for (size_t i = 0; i < d->count; i++) {
        for (long left = queries; left > 0; left -= per_checkout) {
            d->request.queries_left = left < per_checkout ? left : per_checkout;
            d->request.ends = left <= per_checkout;
            (void)tdl_epoll_host_post(&d->churn->host, &d->request.item);
            await_reply(d);
        }
        if (think_us > 0) {
            think(d);
        }
    }
    (void)tdl_epoll_host_post(&d->churn->host, &d->farewell);
    return NULL;
}

static void run_farewell(struct tdl_item *item)
{
    struct driver *d = TDL_CONTAINER_OF(item, struct driver, farewell);
    if (--d->churn->running == 0) {
        tdl_sched_stop(&d->churn->host.sched);
    }
}

static int open_drivers(struct churn *churn)
{
    churn->drivers = calloc((size_t)threads, sizeof *churn->drivers);
    TDL_ASSERT(churn->drivers != NULL);
    for (long i = 0; i < threads; i++) {
        struct driver *d = &churn->drivers[i];
        int code = tdl_wake_open(&d->wake, NULL);
        if (code != 0) {
            while (i-- > 0) {
                tdl_wake_close(&churn->drivers[i].wake);
            }
            free(churn->drivers);
            return code;
        }
        tdl_inbox_init(&d->inbox, &d->wake, NULL);
        tdl_item_init(&d->request.item, run_request);
        tdl_item_init(&d->farewell, run_farewell);
        d->churn = churn;
        d->request.driver = d;
    }
    return 0;
}

static void close_drivers(struct churn *churn)
{
    for (long i = 0; i < threads; i++) {
        (void)tdl_inbox_close(&churn->drivers[i].inbox);
        tdl_wake_close(&churn->drivers[i].wake);
    }
    free(churn->drivers);
}

/* Turns */

/* Watches the wake as long as it spins; true when something was posted. */
static bool spin(struct tdl_epoll_host *h)
{
    tdl_wake_park_begin(&h->wake); /* MO-1: announced before the inbox is looked at */
    bool posted = !tdl_inbox_is_empty(&h->inbox) || tdl_wake_spin(&h->wake);
    (void)tdl_wake_park_end(&h->wake);
    return posted;
}

/* Works off what the turn scheduled and what is posted meanwhile, until both are quiet; only then is polled. */
static void settle(struct tdl_epoll_host *h)
{
    while (!tdl_sched_stopping(&h->sched)) {
        struct tdl_link *posted = tdl_inbox_take(&h->inbox);
        if (posted != NULL) {
            tdl_sched_merge(&h->sched, posted);
        }
        if (!tdl_sched_has_ready(&h->sched) && (spin_us == 0 || !spin(h))) {
            return;
        }
        (void)tdl_sched_freeze(&h->sched);
        (void)tdl_sched_run(&h->sched);
    }
}

static void run_turns(struct tdl_epoll_host *h)
{
    bool quiescent = turn[0] == 'q';
    do {
        (void)tdl_turn(&h->sched, &h->host);
        if (quiescent) {
            settle(h);
        }
    } while (!tdl_sched_stopping(&h->sched));
    tdl_sched_clear_stop(&h->sched);
}

/* Lets each driver make `each` requests. */
static void run_drivers(struct churn *churn, size_t each)
{
    churn->running = threads;
    for (long i = 0; i < threads; i++) {
        churn->drivers[i].count = each;
        /* Without all of its drivers the count would never be reached. */
        TDL_ASSERT(pthread_create(&churn->drivers[i].thread, NULL, drive, &churn->drivers[i]) == 0);
    }
    run_turns(&churn->host);
    for (long i = 0; i < threads; i++) {
        (void)pthread_join(churn->drivers[i].thread, NULL);
    }
}

/* Cases: three figures of the same runs */

struct figures {
    struct tdl_sample sample;
    double connections; /* per 1,000 requests */
    char error[160];
};

static void close_connections(struct churn *churn)
{
    while (churn->all != NULL) {
        struct connection *c = churn->all;
        churn->all = c->next;
        if (c->state != CONNECTION_CLOSED) {
            close_connection(c);
        }
        c->state = CONNECTION_CLOSED;
    }
}

static void forget_connections(struct connection *all)
{
    while (all != NULL) {
        struct connection *next = all->next;
        free(all);
        all = next;
    }
}

static void measure(struct churn *churn, struct tdl_sessions *counter, struct figures *out, size_t each)
{
    long before = tdl_sessions_count(counter);
    size_t warm_each = each / WARMUP_SHARE + 1;
    churn->warm = warm_each * (size_t)threads;
    run_drivers(churn, warm_each + each);
    tdl_bench_end(&churn->begin, (double)(each * (size_t)threads), &out->sample);
    struct connection *all = churn->all;
    close_connections(churn);
    /* A turn drops the items that the closed watches left behind. */
    tdl_sched_stop(&churn->host.sched);
    run_turns(&churn->host);
    forget_connections(all);
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
    const struct tdl_wake_options options = {.spin_ns = (uint64_t)spin_us * 1000U};
    struct churn churn = {.alive = 0};
    struct tdl_sessions counter = {.pg = NULL};
    size_t each = (bench->smoke ? 80U : (size_t)requests) / (size_t)threads;
    churn.idle_end = &churn.idle;
    churn.waiting_end = &churn.waiting;
    if (tdl_epoll_host_open(&churn.host, &options) != 0) {
        fail(&churn, "cannot open a wake", NULL);
    } else {
        if (open_drivers(&churn) == 0) {
            if (tdl_sessions_open(&counter, dsn) == 0) {
                measure(&churn, &counter, out, each == 0 ? 1 : each);
            }
            tdl_sessions_close(&counter);
            close_drivers(&churn);
        } else {
            fail(&churn, "cannot open the drivers' wakes", NULL);
        }
        tdl_epoll_host_close(&churn.host);
    }
    (void)snprintf(out->error, sizeof out->error, "%s", churn.error[0] != '\0' ? churn.error : counter.error);
}

enum { CONNECTIONS, CPU, RATE, FIGURES };

/* Sees to a server; returns what is wrong, or NULL. */
static const char *prepare(void)
{
    if (dsn == NULL && own_server.error == NULL && tdl_postgres_start(&own_server) == 0) {
        dsn = own_server.dsn;
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
     .text = &dsn,
     .value_name = "DSN"},
    {.name = "turn",
     .help = "what a turn runs: one generation, or until nothing is ready",
     .text = &turn,
     .choices = turns},
    {.name = "spin-us",
     .help = "how long the wake watches its word before it sleeps",
     .unit = "us",
     .number = &spin_us,
     .low = 0,
     .high = 1000000},
    {.name = "pool", .help = "connections kept", .number = &pool_size, .low = 1, .high = 1000},
    {.name = "overflow", .help = "connections beyond those", .number = &overflow_max, .low = 0, .high = 1000},
    {.name = "threads",
     .help = "driver threads, one request each at a time",
     .number = &threads,
     .low = 1,
     .high = 1000},
    {.name = "requests", .help = "requests per sample", .number = &requests, .low = 1, .high = 100000000},
    {.name = "queries", .help = "queries per request", .number = &queries, .low = 1, .high = 1000},
    {.name = "per-checkout",
     .help = "queries that are posted together and asked on one connection",
     .number = &per_checkout,
     .low = 1,
     .high = 1000},
    {.name = "query", .help = "what is asked", .text = &query, .value_name = "SQL"},
    {.name = "think-us",
     .help = "pause of a driver between two requests",
     .unit = "us",
     .number = &think_us,
     .low = 0,
     .high = 10000000},
    {.name = "work-us",
     .help = "CPU that each step of a request takes on the loop",
     .unit = "us",
     .number = &work_us,
     .low = 0,
     .high = 1000000},
};

/* A server that is not there should be said before anything is measured. */
static int check(const struct tdl_bench *bench)
{
    char text[256];
    if (dsn == NULL) {
        return 0;
    }
    PGconn *pg = PQconnectdb(dsn);
    int code = 0;
    if (PQstatus(pg) != CONNECTION_OK) {
        const char *why = PQerrorMessage(pg);
        (void)snprintf(text, sizeof text, "a server that answers (%.*s)", (int)strcspn(why, "\n"), why);
        code = tdl_options_refuse(bench->tool, "dsn", text, dsn);
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

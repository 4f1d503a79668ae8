/* Requests on the loop, and the pool that their connections come from. */
#include "churn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "treadle/assert.h"
#include "treadle/clock.h"

static void on_ready(struct tdl_item *item);

void churn_fail(struct churn *churn, const char *what, const PGconn *pg)
{
    const char *why = pg == NULL ? "" : PQerrorMessage(pg);
    if (churn->error[0] == '\0') {
        (void)snprintf(churn->error, sizeof churn->error, "%s: %.*s", what, (int)strcspn(why, "\n"), why);
    }
}

static int watch(struct connection *c, uint32_t events)
{
    if (c->events == events) {
        return 0;
    }
    int code = c->events == 0 ? -ENOENT : tdl_epoll_host_rewatch(&c->churn->host, &c->watch, events);
    /* While it connects, libpq may close its descriptor, which takes it out of the poller, and open
     * another. */
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
    c->pg = PQconnectStart(churn_options.dsn);
    if (c->pg == NULL || PQstatus(c->pg) == CONNECTION_BAD || watch(c, EPOLLOUT) != 0) {
        churn_fail(churn, "cannot connect", c->pg);
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
        churn_fail(c->churn, "cannot connect", c->pg);
        close_connection(c);
    }
    resume(c->request);
}

/* True when the answer is complete, or never will be. */
static bool take_answer(struct connection *c)
{
    PGresult *result;
    if (PQconsumeInput(c->pg) == 0) {
        churn_fail(c->churn, "connection lost", c->pg);
        return true;
    }
    while (PQisBusy(c->pg) == 0) {
        result = PQgetResult(c->pg);
        if (result == NULL) {
            return true;
        }
        if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK) {
            churn_fail(c->churn, "--query failed", c->pg);
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
            churn_fail(c->churn, "cannot send", c->pg);
        }
        if (unsent < 0 || take_answer(c)) {
            resume(c->request);
        }
    } else if (c->state == CONNECTION_IDLE && PQconsumeInput(c->pg) == 0) {
        churn_fail(c->churn, "idle connection lost", c->pg);
        tdl_epoll_host_unwatch(&c->churn->host, &c->watch);
        c->events = 0;
    }
}

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
    if (churn->alive < churn_options.pool_size + churn_options.overflow_max) {
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
    if (churn->idle_count == churn_options.pool_size) {
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

/* What a step costs the loop's thread besides the query, as an interpreter's task does. */
static void work(void)
{
    if (churn_options.work_us == 0) {
        return;
    }
    uint64_t until_ns = tdl_clock_ns() + (uint64_t)churn_options.work_us * 1000U;
    while (tdl_clock_ns() < until_ns) {
    }
}

static bool ask(struct request *r)
{
    struct connection *c = r->connection;
    int unsent = PQsendQuery(c->pg, churn_options.query) == 1 ? PQflush(c->pg) : -1;
    if (unsent == 1) {
        unsent = watch(c, EPOLLIN | EPOLLOUT);
    }
    if (unsent < 0) {
        churn_fail(c->churn, "cannot send", c->pg);
    }
    return unsent >= 0;
}

void churn_run_request(struct tdl_item *item)
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

void churn_close_connections(struct churn *churn)
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

void churn_forget_connections(struct connection *all)
{
    while (all != NULL) {
        struct connection *next = all->next;
        free(all);
        all = next;
    }
}

/* A pool of database connections behind threads, in the three parts that pool_churn measures: drivers that
 * ask from their own threads, requests that take a connection on the loop, and the pool that keeps or
 * discards it. */
#ifndef TREADLE_CLI_CHURN_H
#define TREADLE_CLI_CHURN_H

#include "common/bench.h"

#include <libpq-fe.h>
#include <pthread.h>

#include "treadle/host.h"

/* What the command line says. */
struct churn_options {
    const char *dsn;
    const char *turn;
    const char *query;
    long spin_us;
    long pool_size;
    long overflow_max;
    long threads;
    long requests;
    long queries;
    long per_checkout;
    long think_us;
    long work_us;
};

extern struct churn_options churn_options;

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

/* One driver's request, or the part of it that one connection serves; it is posted again and again. `item`
 * runs each step of it on the loop. */
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

/* connections.c */
/* Keeps the first failure of a run, with the connection's own words. */
void churn_fail(struct churn *churn, const char *what, const PGconn *pg);

/* A step of a request on the loop: takes a connection, asks, or puts it back and replies. */
void churn_run_request(struct tdl_item *item);

/* Ends every connection; the memory stays, since queued items lie in it, until the second call. */
void churn_close_connections(struct churn *churn);
void churn_forget_connections(struct connection *all);

/* drivers.c */
/* 0 or a negative code, and nothing is open then. */
int churn_open_drivers(struct churn *churn);
void churn_close_drivers(struct churn *churn);

/* Takes turns of the kind that the options name until one was asked to stop. */
void churn_run_turns(struct tdl_epoll_host *h);

/* Lets each driver make `each` requests, and runs the loop meanwhile. */
void churn_run_drivers(struct churn *churn, size_t each);

#endif

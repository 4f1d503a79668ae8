#include "sessions.h"

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "treadle/clock.h"

#define END_WAIT_NS (10 * TDL_NS_PER_S)

static int fail(struct tdl_sessions *s, const char *what, const PGconn *pg)
{
    const char *why = pg == NULL ? "" : PQerrorMessage(pg);
    if (s->error[0] == '\0') {
        (void)snprintf(s->error, sizeof s->error, "%s: %.*s", what, (int)strcspn(why, "\n"), why);
    }
    return -1;
}

int tdl_sessions_open(struct tdl_sessions *s, const char *dsn)
{
    const char *const names[] = {"dbname", "dbname", NULL};
    const char *const values[] = {dsn, "template1", NULL};
    *s = (struct tdl_sessions){.pg = NULL};
    PGconn *probe = PQconnectdb(dsn);
    int code = PQstatus(probe) == CONNECTION_OK ? 0 : fail(s, "cannot connect", probe);
    if (code == 0) {
        (void)snprintf(s->database, sizeof s->database, "%s", PQdb(probe));
        s->pg = PQconnectdbParams(names, values, 1);
        if (PQstatus(s->pg) != CONNECTION_OK) {
            code = fail(s, "cannot connect to template1", s->pg);
        }
    }
    PQfinish(probe);
    return code;
}

static long ask(struct tdl_sessions *s, const char *what)
{
    const char *values[] = {s->database};
    PGresult *result = PQexecParams(s->pg, what, 1, NULL, values, NULL, NULL, 0);
    bool good = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;
    long number = good ? strtol(PQgetvalue(result, 0, 0), NULL, 10)
                       : fail(s, "cannot read the server's counters", s->pg);
    PQclear(result);
    return number;
}

long tdl_sessions_count(struct tdl_sessions *s)
{
    uint64_t until_ns = tdl_clock_ns() + END_WAIT_NS;
    while (ask(s, "SELECT count(*), pg_sleep(0.01) FROM pg_stat_activity WHERE datname = $1") > 0) {
        if (tdl_clock_ns() > until_ns) {
            return fail(s, "other sessions stay in the pool's database", NULL);
        }
    }
    return ask(s, "SELECT sessions FROM pg_stat_database WHERE datname = $1");
}

void tdl_sessions_close(struct tdl_sessions *s)
{
    PQfinish(s->pg);
    s->pg = NULL;
}

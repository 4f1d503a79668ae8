/* How many sessions a PostgreSQL database has had, by the server's own counter. */
#ifndef TREADLE_CLI_SESSIONS_H
#define TREADLE_CLI_SESSIONS_H

#include <libpq-fe.h>

struct tdl_sessions {
    PGconn *pg;
    char database[64];
    char error[160]; /* what went wrong, once something did */
};

/* Connects to the server of `dsn`, in another database than the one that is counted.
 * Thread:  owner
 * Owns:    the caller closes it with tdl_sessions_close, after a failure too
 * Errors:  -1, with a text in `error`
 * Cost:    two connections, waited for */
int tdl_sessions_open(struct tdl_sessions *s, const char *dsn);

/* Returns the sessions so far, once every one has ended: only then is each in the counter for certain.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  -1, with a text in `error`; after 10 seconds too when sessions stay
 * Cost:    waits for the sessions' ends */
long tdl_sessions_count(struct tdl_sessions *s);

/* Disconnects.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    one system call */
void tdl_sessions_close(struct tdl_sessions *s);

#endif

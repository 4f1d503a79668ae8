/* A PostgreSQL server of the tool's own, from the system's packages: a fresh cluster in a temporary
 * folder, SCRAM passwords, reached through a Unix socket in that folder. */
#ifndef TREADLE_CLI_POSTGRES_H
#define TREADLE_CLI_POSTGRES_H

#include <sys/types.h>

struct tdl_postgres {
    pid_t pid;         /* 0: not running */
    char folder[128];  /* holds the cluster, the password and the socket */
    char dsn[256];     /* for libpq */
    const char *error; /* what could not be done */
};

/* Makes a cluster and starts a server on it; returns once it accepts connections.
 * Thread:  the main one: the server ends with the thread that started it
 * Owns:    the caller stops it with tdl_postgres_stop, after a failure too
 * Errors:  a negative errno, with a text in `error`; -ENOENT when no server is installed
 * Cost:    two processes, about a second */
int tdl_postgres_start(struct tdl_postgres *server);

/* Stops the server and removes its folder; harmless when it was not started.
 * Thread:  the one that started it, or another inside tdl_stop_guard when the process ends
 * Owns:    nothing
 * Errors:  none
 * Cost:    waits for the server's end */
void tdl_postgres_stop(struct tdl_postgres *server);

#endif

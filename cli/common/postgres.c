#include "postgres.h"

#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_LENGTH 256
#define GROUP_WAIT_MS 1000

static bool has_server(const char *folder)
{
    char path[PATH_LENGTH];
    int n = snprintf(path, sizeof path, "%s/initdb", folder);
    return n > 0 && n < PATH_LENGTH && access(path, X_OK) == 0;
}

/* Debian keeps the server's programs of each version in a folder off the search path. */
static int find_programs(char *folder, size_t size)
{
    glob_t found = {0};
    int code = -ENOENT;
    (void)glob("/usr/lib/postgresql/*/bin", 0, NULL, &found);
    (void)glob("/usr/local/pgsql/bin", GLOB_APPEND, NULL, &found);
    (void)glob("/usr/bin", GLOB_APPEND, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc && code != 0; i++) {
        if (has_server(found.gl_pathv[i])) {
            (void)snprintf(folder, size, "%s", found.gl_pathv[i]);
            code = 0;
        }
    }
    globfree(&found);
    return code;
}

/* The server refuses to run as root. */
static const struct passwd *unprivileged(void)
{
    if (getuid() != 0) {
        return NULL;
    }
    const struct passwd *user = getpwnam("postgres");
    return user != NULL ? user : getpwnam("nobody");
}

static bool become(const struct passwd *user)
{
    return user == NULL ||
           (setgroups(0, NULL) == 0 && setgid(user->pw_gid) == 0 && setuid(user->pw_uid) == 0);
}

/* Starts a program whose output goes to `output`; the child ends with this thread. It is in a process
 * group of its own, since a terminal's Ctrl-C is for the tool, which then stops it in order. */
static void start(struct tdl_postgres *server, const struct passwd *user, char *const argv[], int output)
{
    tdl_stop_guard();
    server->pid = fork();
    if (server->pid != 0) {
        (void)setpgid(server->pid, server->pid); /* as the child does, whoever comes first */
        tdl_stop_unguard();
        return;
    }
    tdl_stop_after_fork();
    if (setpgid(0, 0) == 0 && become(user) && chdir(server->folder) == 0 &&
        dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0 &&
        prctl(PR_SET_PDEATHSIG, SIGQUIT) == 0) {
        (void)execv(argv[0], argv);
    }
    _exit(127);
}

static int make_cluster(struct tdl_postgres *server, const struct passwd *user, const char *programs)
{
    char program[PATH_LENGTH + 16];
    char password[PATH_LENGTH];
    char data[PATH_LENGTH];
    (void)snprintf(program, sizeof program, "%s/initdb", programs);
    (void)snprintf(password, sizeof password, "--pwfile=%s/password", server->folder);
    (void)snprintf(data, sizeof data, "%s/data", server->folder);
    char *const argv[] = {
        program,        (char[]){"-D"},      data,           (char[]){"-A"}, (char[]){"scram-sha-256"},
        (char[]){"-U"}, (char[]){"treadle"}, (char[]){"-N"}, password,       NULL};
    int output = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int status = -1;
    if (output < 0) {
        return -errno;
    }
    start(server, user, argv, output);
    if (server->pid > 0) {
        (void)waitpid(server->pid, &status, 0);
    }
    server->pid = 0;
    (void)close(output);
    return status == 0 ? 0 : -EIO;
}

/* Reads the server's log up to the line that says it is ready. */
static bool await_ready(FILE *log)
{
    char line[512];
    while (fgets(line, sizeof line, log) != NULL) {
        if (strstr(line, "ready to accept connections") != NULL) {
            return true;
        }
    }
    return false;
}

static int run_server(struct tdl_postgres *server, const struct passwd *user, const char *programs)
{
    char program[PATH_LENGTH + 16];
    char data[PATH_LENGTH];
    char sockets[PATH_LENGTH];
    int ends[2];
    (void)snprintf(program, sizeof program, "%s/postgres", programs);
    (void)snprintf(data, sizeof data, "%s/data", server->folder);
    (void)snprintf(sockets, sizeof sockets, "unix_socket_directories=%s", server->folder);
    char *const argv[] = {program,
                          (char[]){"-D"},
                          data,
                          (char[]){"-c"},
                          sockets,
                          (char[]){"-c"},
                          (char[]){"listen_addresses="},
                          (char[]){"-c"},
                          (char[]){"fsync=off"},
                          (char[]){"-c"},
                          (char[]){"log_destination=stderr"},
                          (char[]){"-c"},
                          (char[]){"log_checkpoints=off"},
                          (char[]){"-c"},
                          (char[]){"log_min_messages=log"},
                          NULL};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -errno;
    }
    start(server, user, argv, ends[1]);
    (void)close(ends[1]);
    FILE *log = fdopen(ends[0], "r");
    if (server->pid < 0 || log == NULL || !await_ready(log)) {
        return -EIO;
    }
    /* The log stays open and unread: what the server says from here on fits into the pipe. */
    return 0;
}

static int make_folder(struct tdl_postgres *server, const struct passwd *user)
{
    char path[PATH_LENGTH];
    int code = 0;
    const char *parent = getenv("TMPDIR");
    (void)snprintf(server->folder, sizeof server->folder, "%.80s/treadle-pg-XXXXXX",
                   parent == NULL ? "/tmp" : parent);
    tdl_stop_guard();
    if (mkdtemp(server->folder) == NULL) {
        code = -errno;
        server->folder[0] = '\0';
    }
    tdl_stop_unguard();
    if (code != 0) {
        return code;
    }
    (void)snprintf(path, sizeof path, "%s/password", server->folder);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return -errno;
    }
    (void)fputs("treadle\n", file);
    if (fclose(file) != 0) {
        return -EIO;
    }
    if (user == NULL) {
        return 0;
    }
    bool given = chown(server->folder, user->pw_uid, user->pw_gid) == 0 &&
                 chown(path, user->pw_uid, user->pw_gid) == 0;
    return given ? 0 : -errno;
}

int tdl_postgres_start(struct tdl_postgres *server)
{
    char programs[PATH_LENGTH];
    *server = (struct tdl_postgres){.pid = 0};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* what initdb leaves behind is then this process's to wait for */
    int code = find_programs(programs, sizeof programs);
    if (code != 0) {
        server->error = "no PostgreSQL server here: install Debian's package postgresql, or give --dsn";
        return code;
    }
    const struct passwd *user = unprivileged();
    code = make_folder(server, user);
    if (code != 0) {
        server->error = "cannot make a folder for the cluster";
        return code;
    }
    code = make_cluster(server, user, programs);
    if (code != 0) {
        server->error = "initdb failed";
        return code;
    }
    code = run_server(server, user, programs);
    if (code != 0) {
        server->error = "the PostgreSQL server did not start";
        return code;
    }
    (void)snprintf(server->dsn, sizeof server->dsn, "host=%s user=treadle password=treadle dbname=postgres",
                   server->folder);
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    (void)remove(path);
    return 0;
}

/* Ends initdb or the server at once, since its data are thrown away, and waits for it and for what initdb
 * started: a process that still wrote would leave files behind. A server that is asked for a connection
 * while it ends waits for the client, which may be this process, so it is waited for a second at most. */
static void end_group(pid_t leader)
{
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, leader, 0), .events = POLLIN};
    (void)kill(-leader, SIGQUIT);
    (void)poll(&ended, 1, GROUP_WAIT_MS);
    (void)kill(-leader, SIGKILL);
    /* The thread that waits for initdb may take its status first. */
    while (waitpid(-leader, NULL, 0) > 0) {
    }
    if (ended.fd >= 0) {
        (void)close(ended.fd);
    }
}

void tdl_postgres_stop(struct tdl_postgres *server)
{
    if (server->pid > 0) {
        end_group(server->pid);
    }
    if (server->folder[0] != '\0') {
        (void)nftw(server->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    server->pid = 0;
    server->folder[0] = '\0';
}

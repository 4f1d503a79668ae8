/* getaddrinfo(3) without blocking: looks up every name of the command line at once, four at a time, on
 * threads.
 *
 *     cc lookup.c $(pkg-config --cflags --libs treadle-resolve)
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#include <treadle/inbox.h>
#include <treadle/lookup.h>
#include <treadle/pool.h>
#include <treadle/status.h>

struct ask {
    struct tdl_link done; /* first: what the inbox returns is the question */
    struct tdl_lookup lookup;
    const char *name;
};

static void print_answer(struct ask *ask)
{
    char host[NI_MAXHOST];
    int status = tdl_lookup_status(&ask->lookup);

    if (status != 0) {
        printf("%s: %s\n", ask->name, tdl_status_text(status));
    }
    for (struct addrinfo *row = ask->lookup.rows; status == 0 && row != NULL; row = row->ai_next) {
        if (getnameinfo(row->ai_addr, row->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0) {
            printf("%s: %s\n", ask->name, host);
        }
    }
    tdl_lookup_clear(&ask->lookup);
}

int main(int argc, char **argv)
{
    const uint32_t slots[] = {4};
    const struct tdl_pool_options options = {.slots = slots, .classes = 1, .name = "lookup"};
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct ask *asks = calloc((size_t)argc, sizeof *asks);
    struct tdl_pool *pool;
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    int left = 0;

    if (asks == NULL || tdl_wake_open(&wake, NULL) != 0 || tdl_pool_open(&pool, &options) != 0) {
        return 1;
    }
    tdl_inbox_init(&inbox, &wake, NULL);
    for (int i = 1; i < argc; i++) {
        asks[i].name = argv[i];
        if (tdl_lookup_forward(&asks[i].lookup, argv[i], NULL, &hints, NULL) == 0) {
            left += tdl_lookup_submit(&asks[i].lookup, pool, 0, &inbox, &asks[i].done) == 0;
        }
    }
    while (left > 0) {
        tdl_wake_park_begin(&wake);
        if (tdl_inbox_is_empty(&inbox)) {
            (void)tdl_wake_wait(&wake, UINT64_MAX);
        }
        (void)tdl_wake_park_end(&wake);
        for (struct tdl_link *link = tdl_inbox_take(&inbox), *next; link != NULL; link = next, left--) {
            next = link->next;
            print_answer((struct ask *)link);
        }
    }
    tdl_pool_close(pool);
    (void)tdl_inbox_close(&inbox);
    tdl_wake_close(&wake);
    free(asks);
    return 0;
}

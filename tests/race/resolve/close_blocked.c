/* Goal: close returns whatever libc is doing, forward and reverse, with one and with a hundred lookups
 * executing, and all memory is freed once libc returns. Method: a resolver that is held until after the
 * close, 200 times each; every lookup counts its release, and a leak checker, where there is one, sees the
 * rest. */
#include "../../unit/pool/post_box.h"
#include "../pool/stall.h"
#include "resolver.h"

#include <netdb.h>
#include <netinet/in.h>

#include "treadle/lookup.h"

#define MANY 100u

static tdl_atomic_u32 released;

static void count_and_free(struct tdl_lookup *lookup)
{
    free(lookup);
    (void)tdl_fetch_add_acq_rel_u32(&released, 1);
}

static void ask(struct tdl_pool *pool, struct post_box *box, struct tdl_link *done, bool reverse)
{
    const struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct tdl_lookup *lookup = malloc(sizeof *lookup);
    TDL_ASSERT(lookup != NULL);
    if (reverse) {
        TDL_ASSERT(tdl_lookup_reverse(lookup, (const struct sockaddr *)&in, sizeof in, 0, count_and_free) ==
                   0);
    } else {
        TDL_ASSERT(tdl_lookup_forward(lookup, "localhost", "80", &hints, count_and_free) == 0);
    }
    TDL_ASSERT(tdl_lookup_submit(lookup, pool, 0, &box->inbox, done) == 0);
}

static void one_round(unsigned count, bool reverse)
{
    struct tdl_link unused[MANY + MANY / 2];
    struct tdl_pool *pool = pool_of(count, 0);
    struct post_box box;
    unsigned asked = count + count / 2;
    post_box_open(&box);
    tdl_store_seq_u32(&released, 0);
    resolver_hold();
    for (unsigned i = 0; i < asked; i++) {
        ask(pool, &box, &unused[i], reverse);
    }
    resolver_wait_inside(count);
    tdl_pool_close(pool);
    TDL_ASSERT(tdl_inbox_close(&box.inbox) == NULL);
    tdl_wake_close(&box.wake);
    TDL_ASSERT(tdl_load_acquire_u32(&released) == asked - count);
    resolver_let_go();
    wait_no_pool_alive();
    TDL_ASSERT(tdl_load_acquire_u32(&released) == asked);
}

int main(void)
{
    unsigned rounds = stall_rounds(200);
    stall_watch();
    for (unsigned round = 0; round < rounds; round++) {
        tdl_store_seq_u32(&stall_round, round);
        one_round(1, round % 2 == 0);
        one_round(MANY, round % 2 != 0);
    }
    return 0;
}

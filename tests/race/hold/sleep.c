/* Goal: what begins to be held while the thread falls asleep is sent by it (MO-9). Method: one owner, with
 * nobody else to send, holds a byte, waits until it has arrived, and then holds nothing for about as long
 * as the thread takes to fall asleep. */
#include "stall.h"

#include <poll.h>
#include <sys/socket.h>

#include "treadle/clock.h"
#include "treadle/hold.h"

enum { PAUSE_MIN_NS = 2000000, PAUSE_SPREAD_NS = 4000000 };

static tdl_atomic_u64 progress;
static struct tdl_hold hold;

static void show(void)
{
    fprintf(stderr, "late %d\n", tdl_hold_is_late(&hold));
}

static void step(int ours, int theirs)
{
    char byte;
    struct pollfd readable = {theirs, POLLIN, 0};
    struct tdl_held *held = tdl_hold_begin(&hold, ours, NULL, "x", 1);
    RACE_CHECK(held != NULL);
    RACE_CHECK(poll(&readable, 1, -1) == 1);
    tdl_hold_take(&hold, held);
    RACE_CHECK(held->sent == 1);
    tdl_hold_end(&hold, held);
    tdl_hold_over(&hold);
    RACE_CHECK(recv(theirs, &byte, 1, 0) == 1);
}

static void pause_ns(uint64_t ns)
{
    uint64_t end = tdl_clock_ns() + ns;
    while (tdl_clock_ns() < end) {
        tdl_cpu_pause();
    }
}

int main(void)
{
    struct stall stall;
    int pair[2];
    uint64_t steps = race_count(200);

    stall_begin(&stall, &progress, show);
    tdl_hold_init(&hold);
    RACE_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (uint64_t i = 0; i < steps; i++) {
        step(pair[0], pair[1]);
        (void)tdl_fetch_add_relaxed_u64(&progress, 1);
        pause_ns(PAUSE_MIN_NS + i * 997003 % PAUSE_SPREAD_NS);
    }
    tdl_hold_close(&hold);
    close(pair[0]);
    close(pair[1]);
    stall_end(&stall);
    return 0;
}

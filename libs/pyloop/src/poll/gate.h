/* The gate: a completion ring that tells, without a system call, whether libuv's descriptor became ready.
 * Thread: the loop's thread only.
 * MO-7: the kernel writes the completion tail and the flags; they are read with acquire. */
#ifndef TDL_PYLOOP_GATE_H
#define TDL_PYLOOP_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Why the gate does or does not skip polls. */
enum tdl_gate_state {
    TDL_GATE_NEW,     /* not tried yet */
    TDL_GATE_OFF,     /* switched off by the user */
    TDL_GATE_REFUSED, /* the kernel refused io_uring, or this build lacks it: every turn polls */
    TDL_GATE_IDLE,    /* ring made, no poll armed */
    TDL_GATE_ARMED,   /* the kernel watches the descriptor */
};

struct tdl_gate {
    enum tdl_gate_state state;
    int ring_fd;
    int error; /* errno of the refusal */
    uint32_t empty_polls;
    uint32_t *sq_head, *sq_tail, *sq_flags, *sq_array;
    uint32_t *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    void *sqes, *cqes;
    void *ring_map;
    uint64_t ring_map_len, sqes_map_len;
    uint32_t generation; /* user_data of the poll that counts */
};

/* Put a gate into its first state; no system call. */
void tdl__gate_init(struct tdl_gate *gate, bool off);

/* Tell whether this turn may skip the poll; arms the ring after some empty polls. */
bool tdl__gate_quiet(struct tdl_gate *gate, int fd);

/* Take the completions that the poll to come answers. Never behind the poll: what became ready after it looked may have its
 * completion by then, and would be forgotten. */
void tdl__gate_before_poll(struct tdl_gate *gate);

/* Count a poll that handled nothing or something. */
void tdl__gate_polled(struct tdl_gate *gate, bool handled);

/* Take the poll back before the thread sleeps: an armed park costs more. */
void tdl__gate_disarm(struct tdl_gate *gate);

/* Give the ring back; in a forked child the parent's poll is left alone. */
void tdl__gate_close(struct tdl_gate *gate);

/* Name of the state, for treadle.info(). */
const char *tdl__gate_name(const struct tdl_gate *gate);

#endif

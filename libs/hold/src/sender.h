/* The word of a hold, which its owner and the thread change, and the thread behind all holds of the
 * process. */
#ifndef TDL_HOLD_SENDER_H
#define TDL_HOLD_SENDER_H

#include "treadle/hold.h"

/* The states of the word stand in hold.h. Above them is a count, so that the thread knows what it has seen
 * before. */
enum {
    TDL__HOLD_NONE,
    TDL__HOLD_HELD,
    TDL__HOLD_BUSY,
    TDL__HOLD_SENT,
    TDL__HOLD_STATE = 3,
    TDL__HOLD_COUNT_ONE = 4,
};

/* Out of the way: the other side has the word, for as long as one send takes. */
void tdl__hold_wait(void);

/* Turn HELD into BUSY, or into NONE for the owner that takes the last: what is held is the caller's. Waits
 * while it is BUSY; false if nothing is HELD, and then what was sent can be read. One of two that try wins
 * (MO-9). */
static inline bool tdl__hold_enter(struct tdl_hold *h, uint32_t state)
{
    uint32_t word = tdl_load_acquire_u32(&h->word);
    for (;;) {
        uint32_t is = word & TDL__HOLD_STATE;
        if (is == TDL__HOLD_HELD) {
            if (tdl_cas_acq_rel_u32(&h->word, &word, (word & ~(uint32_t)TDL__HOLD_STATE) | state)) {
                return true;
            }
        } else if (is == TDL__HOLD_BUSY) {
            tdl__hold_wait();
            word = tdl_load_acquire_u32(&h->word);
        } else {
            return false;
        }
    }
}

/* Give the word another state, for whoever has it (MO-9). */
static inline void tdl__hold_leave(struct tdl_hold *h, uint32_t state)
{
    uint32_t word = tdl_load_relaxed_u32(&h->word);
    tdl_store_release_u32(&h->word, (word & ~(uint32_t)TDL__HOLD_STATE) | state);
}

void tdl__sender_lock(void);
void tdl__sender_unlock(void);

/* Take a hold into the list. */
void tdl__sender_open(struct tdl_hold *h);

/* Take it out again; the last one ends the thread. */
void tdl__sender_close(struct tdl_hold *h);

/* Whether the thread exists and will look before anything that begins now has waited for too long. */
bool tdl__sender_is_awake(void);

/* Wake the thread, or start it if there is none; false if there can be none now. */
bool tdl__sender_rouse(void);

#endif

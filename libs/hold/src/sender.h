/* The thread behind all holds of the process, and the lock that orders it with their owners. */
#ifndef TDL_HOLD_SENDER_H
#define TDL_HOLD_SENDER_H

#include "treadle/hold.h"

void tdl__sender_lock(void);
void tdl__sender_unlock(void);

/* Count a hold that was opened. */
void tdl__sender_open(void);

/* Count a hold that was closed; the last one ends the thread. */
void tdl__sender_close(void);

/* The hold has its first entry. Starts the thread if there is none; TDL_EAGAIN if there can be none now. */
int tdl__sender_busy_locked(struct tdl_hold *h, bool *wake);

/* Wake the thread, outside of the lock, if tdl__sender_busy_locked said so. */
void tdl__sender_wake(void);

#endif

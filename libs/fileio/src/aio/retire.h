/* The end of the kernel's contexts. Destroying one waits for a grace period of the kernel, some 30 ms, so
 * threads that do nothing else do it. */
#ifndef TREADLE_FILEIO_RETIRE_H
#define TREADLE_FILEIO_RETIRE_H

#include <stdbool.h>

/* Has the context destroyed soon; nothing of it is in flight any more. */
void tdl__aio_retire(unsigned long context);

/* Until one that was retired is gone, and the kernel has room again for what it held; false when there is
 * none. */
bool tdl__aio_wait_for_room(void);

#endif

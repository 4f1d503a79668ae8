/* All that treadle knows of libuv's insides: nothing else touches what is not in libuv's documentation.
 * Thread: whoever may call libuv. */
#ifndef TDL_PYLOOP_UVPRIV_H
#define TDL_PYLOOP_UVPRIV_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Learn how libuv leaves a handle that polls nothing: 0 or a code. The model's type is unknown if it is not understood. */
int tdl__uvpriv_model(uv_loop_t *uv, uv_poll_t *model);

/* Make a handle that polls nothing, from the model if that is understood: 0 or a code. */
int tdl__uvpriv_poll_init(uv_loop_t *uv, const uv_poll_t *model, uv_poll_t *poll);

/* Give a handle that polls nothing a number that nobody can poll. */
void tdl__uvpriv_park(uv_poll_t *poll);

/* Start to poll the descriptor, entered into epoll here, with more of epoll's flags: 0 or a code. */
int tdl__uvpriv_start(uv_poll_t *poll, int fd, int events, uint32_t flags, uv_poll_cb callback);

/* Enter into epoll what libuv polls for itself: 0 or a code. */
int tdl__uvpriv_enter_own(uv_loop_t *uv);

/* Whether libuv still has its own descriptors: a process may close every number it finds. */
bool tdl__uvpriv_alive(const uv_loop_t *uv);

#endif

/* All that treadle knows of libuv's insides: nothing else touches what is not in libuv's documentation.
 * Versions: 1.44 on.
 *
 * Name                          what it is for                               where the check fails
 * uv_poll_t.io_watcher          a handle is made without the three system    each descriptor gets a handle by
 * uv_poll_init(), and {fd, events, pevents}        calls of uv_poll_init(), and polls any       keeps it as
 * long as it is watched number later io_watcher.watcher_queue,     descriptors are entered into epoll here,
 * libuv enters them, by level, and aborts if the kernel uv_loop_t.watcher_queue      by edge too, and a
 * refusal is an error       refuses; what is read by edge is read by level uv_loop_t.async_io_watcher    a
 * loop whose descriptors were closed         it is closed as any other behind its back is not closed
 *
 * One check for all, when the module is imported: a handle is made, started, entered, told of an event and
 * stopped, and each field has to follow. It is called uv_handles in _treadle._trusted(). Thread: whoever may
 * call libuv. */
#ifndef TDL_PYLOOP_UVPRIV_H
#define TDL_PYLOOP_UVPRIV_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Whether the insides of this loop's libuv are known. Its data is the model. */
static inline bool tdl__uvpriv_known(const uv_loop_t *uv)
{
    return ((const uv_poll_t *)uv->data)->type == UV_POLL;
}

/* Learn how libuv leaves a handle that polls nothing: 0 or a code. The model's type is unknown if it is not
 * understood. */
int tdl__uvpriv_model(uv_loop_t *uv, uv_poll_t *model, bool distrusted);

/* Poll nothing any more. */
void tdl__uvpriv_stop(uv_poll_t *poll);

/* Make a handle that polls nothing, from the loop's model if that is understood; else it is none before it is
 * started. */
void tdl__uvpriv_poll_init(uv_loop_t *uv, uv_poll_t *poll);

/* Close a handle that was made; the callback may be called at once. */
void tdl__uvpriv_close(uv_poll_t *poll, uv_close_cb closed);

/* Start to poll the descriptor, entered into epoll here, with more of epoll's flags: 0 or a code. */
int tdl__uvpriv_start(uv_poll_t *poll, int fd, int events, uint32_t flags, uv_poll_cb callback);

/* Enter into epoll what libuv polls for itself: 0 or a code. */
int tdl__uvpriv_enter_own(uv_loop_t *uv);

/* Whether libuv still has its own descriptors: a process may close every number it finds. */
bool tdl__uvpriv_alive(const uv_loop_t *uv);

#endif

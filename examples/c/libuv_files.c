/* fileio in a libuv program: reads every file of the command line at once and prints how long each is, up
 * to 64 KiB. The context's descriptor tells libuv's loop when something is finished.
 *
 *     cc libuv_files.c $(pkg-config --cflags --libs treadle-fileio libuv)
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include <treadle/fileio.h>
#include <treadle/status.h>

#define BYTES 65536

struct file {
    struct tdl_fop op; /* first: the operation is the file */
    const char *path;
    char bytes[BYTES];
};

static struct tdl_fio fio;
static int left;

static void on_finished(uv_poll_t *watch, int status, int events)
{
    struct tdl_queue finished;
    (void)status;
    (void)events;
    tdl_queue_init(&finished);
    tdl_fio_step(&fio);
    (void)tdl_fio_reap(&fio, &finished);
    while (!tdl_queue_is_empty(&finished)) {
        struct file *file = (struct file *)tdl_fop_of(tdl_queue_pop(&finished));
        if (file->op.result < 0) {
            printf("%s: %s\n", file->path, tdl_status_text((int)file->op.result));
        } else {
            printf("%s: %lld bytes\n", file->path, (long long)file->op.result);
        }
        left--;
    }
    if (tdl_fio_wants_flush(&fio)) {
        (void)tdl_fio_flush(&fio);
    }
    if (left == 0) {
        uv_close((uv_handle_t *)watch, NULL);
    }
}

int main(int argc, char **argv)
{
    uv_poll_t watch;
    int failed = tdl_fio_open(&fio, NULL);
    struct file *files = calloc((size_t)argc, sizeof *files);

    if (failed || files == NULL || (failed = tdl_fio_start(&fio)) != 0) {
        fprintf(stderr, "no file context: %s\n", tdl_status_text(failed));
        return 1;
    }
    uv_poll_init(uv_default_loop(), &watch, tdl_fio_fd(&fio));
    uv_poll_start(&watch, UV_READABLE, on_finished);
    tdl_fio_hold(&fio, true);
    for (int i = 1; i < argc; i++) {
        files[i].path = argv[i];
        tdl_fop_read_file(&files[i].op, AT_FDCWD, argv[i], files[i].bytes, BYTES);
        left += tdl_fio_stage(&fio, &files[i].op) == 0;
    }
    tdl_fio_hold(&fio, false);
    (void)tdl_fio_flush(&fio); /* one system call for all of them */
    if (left == 0) {
        uv_close((uv_handle_t *)&watch, NULL);
    }
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    (void)tdl_fio_close(&fio, NULL);
    free(files);
    return uv_loop_close(uv_default_loop());
}

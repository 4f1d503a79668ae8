/* fileio alone: an open, a read and a close on the engine that this machine has. */
#include <treadle/fileio.h>

static struct tdl_fio fio;

static int64_t finish(struct tdl_fop *op)
{
    struct tdl_queue finished;

    tdl_queue_init(&finished);
    if (tdl_fio_stage(&fio, op) != 0 || tdl_fio_drain(&fio, &finished) != 0) {
        return -1;
    }
    return tdl_fop_of(tdl_queue_pop(&finished)) == op ? op->result : -1;
}

int main(int argc, char **argv)
{
    struct tdl_fop op;
    char buffer[16];
    int fd;

    (void)argc;
    if (tdl_fio_open(&fio, NULL) != 0) {
        return 1;
    }
    tdl_fop_open(&op, -1, argv[0], 0, 0);
    fd = (int)finish(&op);
    tdl_fop_read(&op, fd, buffer, sizeof buffer, 0);
    if (fd < 0 || finish(&op) != (int64_t)sizeof buffer || buffer[1] != 'E') {
        return 1;
    }
    tdl_fop_close(&op, fd);
    if (finish(&op) != 0) {
        return 1;
    }
    return tdl_fio_close(&fio, NULL) == 0 ? 0 : 1;
}

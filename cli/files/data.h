/* The files that a run of the fileio tool makes. The data file has no name unless it is kept, so nothing
 * is left of it however the tool ends; the small files are opened by name, in a folder of their own. */
#ifndef TREADLE_CLI_DATA_H
#define TREADLE_CLI_DATA_H

#include <stddef.h>

#define SMALL_FILES 1000u
#define SMALL_BYTES 4096u
#define DATA_NAME "treadle-fileio.data"
#define PATH_BYTES 4096

struct data_files {
    const char *folder; /* where they lie */
    long keep;          /* the data file, under its name */
    int folder_fd;
    int data_fd;            /* -1: not made yet */
    char small[PATH_BYTES]; /* empty: not made */
    int small_fd;
};

extern struct data_files data_files;

/* All return 0 or a descriptor, or a negative code. */
/* Makes the data file, or finds the one that was kept. */
int data_open(size_t bytes);

/* Opens a file without a name in the folder. */
int data_open_unnamed(void);

/* Opens it once more: direct access is a property of the opening. */
int data_open_again(int flags);

/* Reads a file into the page cache. */
int data_warm(int fd, size_t bytes);

int data_make_small(void);
void data_name_small(char name[24], size_t number);

/* Called once, at the end. The descriptors end with the process: a case may still use them. */
void data_remove(void);

#endif

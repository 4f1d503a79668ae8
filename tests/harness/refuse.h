/* Has the kernel refuse system calls of this process from here on, by a seccomp filter that nothing takes
 * back: for the child of a fork, or as the last thing that a program does. */
#ifndef TREADLE_TEST_REFUSE_H
#define TREADLE_TEST_REFUSE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Up to three calls answer with an error, everything else passes; false where the kernel allows no filter. */
static inline bool refuse_calls(int error, unsigned a, unsigned b, unsigned c)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, a, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, b, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA)),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof rules[0], .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#endif

// A preload library for programs that write files, by filters of system calls, which see those of every library.
// DISTURB=unnamed: files without names cannot be made, as in file systems that do not have them.
// DISTURB=end: when a temporary name is about to be renamed or removed, the program gets SIGTERM, and then time.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define PASS 0x7e57
#define DATA(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define IF(call, then) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, then, 0)

static struct sock_filter unnamed[] = {
    DATA(nr), IF(SYS_open, 2), IF(SYS_openat, 3),
    RETURN(SECCOMP_RET_ALLOW),
    DATA(args[1]), BPF_STMT(BPF_JMP | BPF_JA, 1),
    DATA(args[2]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
    RETURN(SECCOMP_RET_ERRNO | EOPNOTSUPP), RETURN(SECCOMP_RET_ALLOW),
};

static struct sock_filter end[] = {
    DATA(nr), IF(SYS_rename, 5), IF(SYS_renameat, 4), IF(SYS_renameat2, 3), IF(SYS_rmdir, 2), IF(SYS_unlinkat, 1),
    RETURN(SECCOMP_RET_ALLOW),
    DATA(args[5]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PASS, 0, 1),
    RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_TRAP),
};

static void on_trap(int signal, siginfo_t *about, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    int call = about->si_syscall, saved = errno;
    const char *path = (const char *)(call == SYS_rename || call == SYS_rmdir ? r[REG_RDI] : r[REG_RSI]);
    if (strstr(path, ".trodden-") || strstr(path, "trodden-store-")) {
        struct timespec time = { 0, 300000000 };
        kill(getpid(), SIGTERM);
        while (nanosleep(&time, &time) && errno == EINTR) {}
    }
    long result = syscall(call, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], PASS);
    r[REG_RAX] = result == -1 ? -errno : result;
    errno = saved;
}

__attribute__((constructor)) static void set(void) {
    struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER };
    const char *how = getenv("DISTURB");
    // Programs that it starts inherit the filter; under an emulator they can set none.
    unsetenv("LD_PRELOAD");
    int ends = how && !strcmp(how, "end");
    struct sock_fprog program = { ends ? sizeof end / sizeof *end : sizeof unnamed / sizeof *unnamed, ends ? end : unnamed };
    if (sigaction(SIGSYS, &action, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(99);
}

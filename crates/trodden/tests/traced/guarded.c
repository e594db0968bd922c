// Reads its code while it does, as its argument says, what a guard of the code could disturb. It prints what it sees.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
extern char **environ;
extern const unsigned char __executable_start, etext;
extern const struct timespec pause_in_code;
extern const char path_in_code[];
int main(int arguments, char **words);
static const unsigned char *begin;
static size_t length;
static unsigned char *original;
static volatile sig_atomic_t caught, is_over;
static sigjmp_buf back;
__attribute__((noinline)) int collatz(int n) { int steps = 0; while (n > 1) { n = n & 1 ? 3 * n + 1 : n / 2; steps++; } return steps; }
__attribute__((noinline)) unsigned sum(const unsigned char *at, size_t length) {
    unsigned sum = 1;
    // Four bytes in a block, because a collector may stop the program at each block.
    for (; length % 4; length--) sum = sum * 31 + *at++;
    for (; length; length -= 4, at += 4) sum = (((sum * 31 + at[0]) * 31 + at[1]) * 31 + at[2]) * 31 + at[3];
    return sum;
}
static void reads(void) {
    if (sum(begin, length) != sum(original, length) || collatz(27) != 111) { (void)!write(2, "differs\n", 8); _exit(3); }
}
static const char *name_of(void (*handler)(int), void (*own)(int)) {
    return handler == SIG_DFL ? "default" : handler == SIG_IGN ? "ignored" : handler == own ? "own" : "other";
}
static void count(int s) { caught++; }
static void end(int s) { is_over = 1; }
static void leave(int s) { caught++; siglongjmp(back, 1); }
static void say(const char *when) {
    for (int n = 0; n < 2; n++) {
        int s = n ? SIGTRAP : SIGSEGV;
        struct sigaction action;
        sigset_t mask;
        sigaction(s, 0, &action);
        sigprocmask(SIG_SETMASK, 0, &mask);
        printf("%s: %d %s, flags %x, %s\n", when, s, name_of(action.sa_handler, count), action.sa_flags, sigismember(&mask, s) ? "blocked" : "free");
    }
}
// How often threads repeat what could be disturbed: more often if the environment says so.
static long often(long times) { const char *rounds = getenv("TRODDEN_TEST_ROUNDS"); return rounds ? times * atol(rounds) : times; }
static void block(int how, int s) { sigset_t set; sigemptyset(&set); sigaddset(&set, s); sigprocmask(how, &set, 0); }
static void handle(int s, void (*handler)(int), int flags, int all) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (all) sigfillset(&action.sa_mask);
    sigaction(s, &action, 0);
}
static void in_handler(int s, siginfo_t *information, void *context) {
    say("handler");
    reads();
    say("handler, read");
    if (caught++) sigaddset(&((ucontext_t *)context)->uc_sigmask, SIGSEGV);
}
static void quiet_reads(int s) { caught++; reads(); }
#define TIMER_SIGNALS 6
// The next signal comes some time after this one, and only a few come: in a slow trace, the program would execute almost nothing but handlers.
static void start_timer(void) { setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 3000}}, 0); }
static void timed_reads(int s) { quiet_reads(s); if (caught < TIMER_SIGNALS) start_timer(); }
static __thread volatile int traps;
static void on_own_trap(int s) { traps++; }
static void *trap_often(void *times) { for (long n = (long)times; n; n--) { if (n % 2) raise(SIGTRAP); else __asm__ volatile("int3"); } return (void *)(long)traps; }
static void *count_blocked(void *times) {
    sigset_t all;
    long steps = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    for (long n = (long)times; n; n--) steps += collatz(27);
    return (void *)steps;
}
static int tell(int status) { return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status); }
static void *read_often(void *times) { for (long n = (long)times; n; n--) reads(); return 0; }
// In these states, the trace may stop hiding its changes.
static void *read_anything(void *times) { unsigned all = 0; for (long n = (long)times; n; n--) all += sum(begin, length); return all ? times : 0; }
static void *read_blocked(void *times) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    return read_anything(times);
}
static pthread_key_t jump;
static void on_own_fault(int s, siginfo_t *information, void *context) { siglongjmp(*(sigjmp_buf *)pthread_getspecific(jump), 1); }
static void *fault_often(void *times) {
    sigjmp_buf place;
    volatile long faults = 0;
    pthread_setspecific(jump, &place);
    for (volatile long n = (long)times; n; n--) {
        if (sigsetjmp(place, 1)) { faults++; continue; }
        if (n % 2) *(volatile char *)main = 1; else *(volatile char *)16 = 1;
    }
    return (void *)faults;
}
static void *fork_often(void *times) {
    long bad = 0;
    for (long n = (long)times; n; n--) {
        int status;
        pid_t child = fork();
        if (!child) { _exit(sum(begin, length) == sum(original, length) && collatz(27) == 111 ? 7 : 8); }
        waitpid(child, &status, 0);
        if (tell(status) != 7) bad = tell(status);
    }
    return (void *)bad;
}
static void *protect_often(void *times) {
    char *page = (char *)((uintptr_t)&etext & ~4095ul);
    for (long n = (long)times; n; n--) { mprotect(page, 4096, PROT_READ | PROT_EXEC); close(open(n % 2 ? "/dev/missing" : path_in_code, O_RDONLY)); }
    return 0;
}
static void *spawn_often(void *times) {
    long bad = 0;
    for (long n = (long)times; n; n--) {
        char *arguments[] = {"true", 0};
        pid_t child;
        int status;
        if (posix_spawn(&child, "/bin/true", 0, 0, arguments, environ)) { bad++; continue; }
        waitpid(child, &status, 0);
        bad += tell(status) != 0;
    }
    return (void *)bad;
}
static void *nothing(void *p) { return p; }
static void *create_often(void *times) {
    for (long n = (long)times; n; n--) { pthread_t thread; pthread_create(&thread, 0, nothing, 0); pthread_join(thread, 0); }
    return 0;
}
static int child_of_clone(void *how) {
    if (how) { signal(SIGSEGV, SIG_IGN); signal(SIGTRAP, SIG_IGN); }
    if (!how) reads();
    _exit(collatz(27) == 111 ? 5 : 6);
}
static int run_clone(int flags, void *how) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    int status = 0;
    pid_t child = clone(child_of_clone, stack + sizeof stack, flags | SIGCHLD, how);
    waitpid(child, &status, 0);
    return tell(status);
}
static unsigned rights(void) { unsigned low, high; __asm__ volatile("rdpkru" : "=a"(low), "=d"(high) : "c"(0)); return low; }
__attribute__((noinline, section(".text"))) void store_near(void) {
    __asm__ volatile("jmp 2f\n 1: movb $0x90, 3(%%rip)\n nop\n nop\n nop\n nop\n nop\n nop\n ret\n 2: call 1b" : : : "memory");
}
__asm__(".text\n.globl pause_in_code, path_in_code\n.balign 8\npause_in_code: .quad 0, 1000\npath_in_code: .asciz \"/dev/null\"\n.balign 16\n");
int main(int arguments, char **words) {
    const char *how = words[1];
    setvbuf(stdout, 0, _IONBF, 0);
    begin = &__executable_start;
    length = &etext - begin;
    original = malloc(length);
    int file = open("/proc/self/exe", O_RDONLY), copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (read(file, original, length) != (ssize_t)length || copy < 0) return 1;
    pthread_t threads[6];
    void *results[6];
    int ends[2], status;
#define IS(name) (!strcmp(how, name))
    if (IS("reset")) {
        for (int n = 0; n < 2; n++) {
            int s = n ? SIGTRAP : SIGSEGV;
            handle(s, count, SA_RESETHAND, 0);
            raise(s);
            block(SIG_BLOCK, s);
            reads();
            say("after");
        }
    } else if (IS("own-actions")) {
        handle(SIGSEGV, count, 0, 0);
        handle(SIGTRAP, count, SA_RESTART, 0);
        block(SIG_BLOCK, SIGSEGV);
        block(SIG_BLOCK, SIGTRAP);
        reads();
        printf("%d\n", run_clone(CLONE_VM | CLONE_VFORK, "ignore"));
        reads();
        say("after");
        printf("%d\n", run_clone(CLONE_VM | CLONE_VFORK, 0));
        say("after reading child");
        printf("%d\n", run_clone(CLONE_VM, "ignore"));
        say("after process with the same memory");
    } else if (IS("masks")) {
        struct sigaction action = {.sa_sigaction = in_handler, .sa_flags = SA_SIGINFO};
        sigfillset(&action.sa_mask);
        sigaction(SIGUSR1, &action, 0);
        raise(SIGUSR1);
        say("between");
        raise(SIGUSR1);
        say("after");
        reads();
        say("after, read");
    } else if (IS("handlers")) {
        for (int n = 0; n < 8; n++) {
            handle(SIGSEGV, n & 1 ? quiet_reads : SIG_DFL, n & 2 ? SA_NODEFER : 0, n & 4);
            handle(SIGUSR1, quiet_reads, n & 2 ? SA_NODEFER : 0, n & 4);
            raise(SIGUSR1);
            if (n & 1) raise(SIGSEGV);
            say("between");
        }
        printf("%d\n", caught);
    } else if (IS("suspend")) {
        sigset_t all;
        sigfillset(&all);
        sigdelset(&all, SIGALRM);
        struct sigaction action = {.sa_sigaction = in_handler, .sa_flags = SA_SIGINFO};
        sigaction(SIGALRM, &action, 0);
        block(SIG_BLOCK, SIGALRM);
        for (int n = 0; n < 2; n++) {
            alarm(1);
            if (n) ppoll(0, 0, 0, &all); else sigsuspend(&all);
            say("after");
            reads();
        }
    } else if (IS("ignored")) {
        signal(SIGSEGV, SIG_IGN);
        signal(SIGTRAP, SIG_IGN);
        reads();
        say("ignored");
        kill(getpid(), SIGSEGV);
        kill(getpid(), SIGTRAP);
        if (!fork()) { reads(); say("child"); _exit(4); }
        wait(&status);
        printf("%d\n", tell(status));
        printf("%d\n", run_clone(CLONE_VM | CLONE_VFORK, 0));
        say("after");
        if (!fork()) { *(volatile char *)main = 1; _exit(4); }
        wait(&status);
        printf("%d\n", tell(status));
        execl("/bin/sh", "sh", "-c", "grep SigIgn /proc/self/status", (char *)0);
    } else if (IS("inherited")) {
        say("before");
        reads();
        say("after");
    } else if (IS("trap-blocked")) {
        sigset_t pending;
        handle(SIGTRAP, count, 0, 0);
        block(SIG_BLOCK, SIGTRAP);
        for (int n = 1; n < 30; n++) caught += collatz(n) > 1000;
        kill(getpid(), SIGTRAP);
        say("blocked");
        reads();
        sigpending(&pending);
        printf("%d %d\n", sigismember(&pending, SIGTRAP), caught);
        block(SIG_UNBLOCK, SIGTRAP);
        printf("%d\n", caught);
        __asm__ volatile("int3");
        printf("%d\n", caught);
    } else if (IS("store")) {
        handle(SIGSEGV, leave, SA_NODEFER, 0);
        reads();
        if (!sigsetjmp(back, 1)) store_near();
        printf("%d\n", caught);
        for (const unsigned char *at = begin; at < begin + length; at += 500)
            if (!sigsetjmp(back, 1)) *(volatile unsigned char *)at = *at;
        printf("%d\n", caught);
        reads();
        signal(SIGSEGV, SIG_DFL);
        block(SIG_BLOCK, SIGSEGV);
        store_near();
    } else if (IS("fatal-blocked")) {
        handle(SIGSEGV, count, 0, 0);
        block(SIG_BLOCK, SIGSEGV);
        reads();
        *(volatile char *)main = *(volatile char *)sum;
    } else if (IS("keys")) {
        reads();
        printf("%x\n", rights());
        int wrong = pkey_mprotect(&environ, 1, PROT_READ, 1);
        printf("%d %d %d %d\n", wrong, errno, pkey_free(1), errno);
        int first = pkey_alloc(0, 0), second = pkey_alloc(0, 2);
        printf("%d %d %x\n", first, second, rights());
        printf("%d %x\n", pkey_free(first), rights());
        printf("%d %x\n", pkey_alloc(0, 1), rights());
    } else if (IS("executable-only")) {
        reads();
        char *code = mmap(0, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("%d %d %x\n", code != MAP_FAILED, pkey_alloc(0, 0), rights());
    } else if (IS("asynchronous")) {
        unsigned long context = 0;
        struct { uint64_t data; uint32_t key, flags; uint16_t op; int16_t priority; uint32_t file; uint64_t buffer, bytes; int64_t at; uint64_t rest[2]; }
            request = {.op = 1, .file = copy, .buffer = (uintptr_t)begin, .bytes = length}, *list[] = {&request};
        struct { uint64_t data, object; int64_t result, more; } event;
        reads();
        if (syscall(SYS_io_setup, 4, &context)) return puts("no asynchronous calls"), 0;
        long sent = syscall(SYS_io_submit, context, 1, list), got = syscall(SYS_io_getevents, context, 1, 1, &event, 0);
        printf("%ld %ld %d\n", sent, got, event.result == (long)length);
        printf("%d\n", syscall(SYS_io_uring_setup, 4, 0) < 0);
    } else if (IS("messages")) {
        socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
        struct iovec parts[] = {{"data", 4}, {(void *)begin, 3000}, {(void *)main, 100}};
        struct mmsghdr messages[3] = {};
        for (int n = 0; n < 3; n++) { messages[n].msg_hdr.msg_iov = parts + n; messages[n].msg_hdr.msg_iovlen = 1; }
        reads();
        printf("%d\n", sendmmsg(ends[0], messages, 3, 0));
        printf("%u %u %u\n", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    } else if (IS("queue")) {
        int queue = msgget(IPC_PRIVATE, 0600);
        reads();
        printf("%d\n", msgsnd(queue, begin, 4000, 0) ? errno : 0);
        printf("%d\n", msgsnd(queue, (char *)main - 5000, 6000, IPC_NOWAIT) ? errno : 0);
        msgctl(queue, IPC_RMID, 0);
    } else if (IS("splice")) {
        struct iovec part = {(void *)begin, 3000};
        unsigned char got[3000];
        pipe(ends);
        reads();
        printf("%zd\n", vmsplice(ends[1], &part, 1, 0));
        printf("%d\n", write(copy, begin, length) == (ssize_t)length);
        printf("%zd\n", read(ends[0], got, sizeof got));
    } else if (IS("direct")) {
        int direct = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0600);
        const unsigned char *page = (unsigned char *)((uintptr_t)main & ~4095ul);
        unsigned char got[4096];
        reads();
        printf("%zd\n", write(direct, page, 4096));
        printf("%d\n", pread(open("direct", O_RDONLY), got, 4096, 0) == 4096 && !memcmp(got, original + (page - begin), 4096));
        unlink("direct");
    } else if (IS("short")) {
        unsigned char *mapped = mmap(0, 3 * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        munmap(mapped + 4096, 8192);
        reads();
        printf("%zd\n", write(copy, mapped, 10000));
        printf("%d\n", write(copy, begin, 1ul << 40) > (ssize_t)length);
        struct iovec parts[] = {{(void *)begin, 100}, {(void *)main, 1ul << 40}, {(void *)16, 10}};
        printf("%zd", writev(copy, parts, 1));
        parts[1].iov_len = 10;
        printf(" %zd", writev(copy, parts, 3));
        printf(" %zd\n", writev(copy, (void *)main, 2000));
    } else if (IS("consumed")) {
        char got[100] = "";
        socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
        reads();
        for (int n = 0; n < 3; n++) { sprintf(got, "message %d", n); send(ends[0], got, 10, 0); }
        printf("%d\n", recv(ends[1], (void *)main, 10, MSG_DONTWAIT) < 0 ? errno : 0);
        printf("%zd %s\n", recv(ends[1], got, 10, MSG_DONTWAIT), got);
        printf("%zd %s\n", recv(ends[1], got, 10, MSG_DONTWAIT), got);
    } else if (IS("data")) {
        for (int n = 0; n < 50; n++) {
            if (nanosleep(&pause_in_code, 0)) printf("nanosleep %d\n", errno);
            int null = open(path_in_code, O_RDONLY);
            if (null < 0) printf("open %d\n", errno);
            close(null);
        }
        struct pollfd none = {.fd = -1};
        printf("%d\n", ppoll(&none, 1, &pause_in_code, 0));
        char *line[] = {"sh", "-c", "exit 12", 0};
        pid_t child;
        posix_spawn(&child, "/bin/sh", 0, 0, line, environ);
        waitpid(child, &status, 0);
        printf("%d\n", tell(status));
    } else if (IS("forks")) {
        for (int n = 0; n < 6; n++) pthread_create(&threads[n], 0, n < 2 ? fork_often : n < 4 ? read_anything : n < 5 ? protect_often : spawn_often, (void *)(n < 2 ? often(10) : n < 5 ? often(4) : often(5)));
        for (int n = 0; n < 6; n++) { pthread_join(threads[n], &results[n]); if (n < 2 || n == 5) printf("%ld\n", (long)results[n]); }
    } else if (IS("threads")) {
        pthread_key_create(&jump, 0);
        struct sigaction action = {.sa_sigaction = on_own_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
        sigaction(SIGSEGV, &action, 0);
        for (int n = 0; n < 6; n++) pthread_create(&threads[n], 0, n < 2 ? fault_often : n < 4 ? read_blocked : n < 5 ? read_anything : create_often, (void *)(n < 2 ? often(40) : n < 5 ? often(1) : often(10)));
        for (int n = 0; n < 6; n++) { pthread_join(threads[n], &results[n]); if (n < 2) printf("%ld\n", (long)results[n]); }
        struct sigaction now;
        sigaction(SIGSEGV, 0, &now);
        printf("%d %x\n", now.sa_sigaction == on_own_fault, now.sa_flags);
    } else if (IS("traps")) {
        handle(SIGTRAP, on_own_trap, SA_RESTART, 0);
        for (int n = 0; n < 4; n++) pthread_create(&threads[n], 0, n < 2 ? trap_often : count_blocked, (void *)(n < 2 ? often(70) : often(4)));
        for (int n = 0; n < 4; n++) { pthread_join(threads[n], &results[n]); printf("%ld\n", (long)results[n]); }
        struct sigaction now;
        sigaction(SIGTRAP, 0, &now);
        printf("%d %x\n", now.sa_handler == on_own_trap, now.sa_flags);
    } else if (IS("stack")) {
        static char other[1 << 16];
        stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
        sigaltstack(&stack, 0);
        handle(SIGSEGV, leave, SA_ONSTACK, 1);
        for (int n = 0; n < 20; n++) {
            if (!sigsetjmp(back, 1)) *(volatile char *)(n % 2 ? (char *)main : (char *)16) = 1;
            reads();
        }
        printf("%d\n", caught);
    } else if (IS("timer")) {
        handle(SIGALRM, timed_reads, SA_RESTART, 1);
        handle(SIGSEGV, count, 0, 0);
        start_timer();
        while (caught < TIMER_SIGNALS) reads();
        setitimer(ITIMER_REAL, &(struct itimerval){}, 0);
        say("after");
    } else if (IS("stopped")) {
        pid_t parent = getpid(), child = fork();
        if (!child) {
            for (int n = 0; n < 8; n++) { usleep(20000); kill(parent, SIGSTOP); usleep(20000); kill(parent, SIGCONT); }
            kill(parent, SIGUSR1);
            _exit(0);
        }
        signal(SIGUSR1, count);
        while (!caught) reads();
        wait(&status);
        printf("%d\n", tell(status));
    } else if (IS("emulated")) {
        struct { uint16_t limit; uint64_t base; } __attribute__((packed)) table = {};
        handle(SIGSEGV, leave, SA_NODEFER, 0);
        reads();
        if (!sigsetjmp(back, 1)) __asm__ volatile("sgdt %0" : "=m"(table));
        if (!sigsetjmp(back, 1)) __asm__ volatile("cli");
        printf("%d %lx\n", caught, table.base);
    } else if (IS("raised")) {
        sigset_t pending;
        handle(SIGSEGV, count, 0, 0);
        handle(SIGTRAP, count, 0, 0);
        block(SIG_BLOCK, SIGSEGV);
        block(SIG_BLOCK, SIGTRAP);
        for (int n = 0; n < 4; n++) {
            if (n & 1) kill(getpid(), n & 2 ? SIGSEGV : SIGTRAP); else raise(n & 2 ? SIGSEGV : SIGTRAP);
            read_anything((void *)2l);
            say("pending");
            sigpending(&pending);
            printf("%d %d %d\n", sigismember(&pending, SIGTRAP), sigismember(&pending, SIGSEGV), caught);
            block(SIG_UNBLOCK, n & 2 ? SIGSEGV : SIGTRAP);
            printf("%d\n", caught);
            block(SIG_BLOCK, n & 2 ? SIGSEGV : SIGTRAP);
        }
    } else if (IS("mappings")) {
        FILE *limit = fopen("/proc/sys/vm/max_map_count", "r");
        long most = 0;
        if (fscanf(limit, "%ld", &most) != 1 || most > 100000) return puts("no limit"), 0;
        void *last = 0;
        while ((last = mmap(0, 4096, last && caught++ & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED) {}
        printf("%d\n", errno);
        read_anything((void *)2l);
    } else if (IS("loop")) {
        handle(SIGSEGV, count, SA_RESTART, 0);
        handle(SIGUSR1, end, 0, 0);
        signal(SIGTRAP, SIG_IGN);
        block(SIG_BLOCK, SIGSEGV);
        printf("ready\n");
        while (!is_over) { reads(); usleep(1000); }
        say("after");
    } else if (IS("mapped")) {
        unsigned char *page = (unsigned char *)((uintptr_t)collatz & ~4095ul);
        reads();
        unsigned char *moved = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(moved, page, 4096);
        printf("%d\n", mremap(moved, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
        printf("%d\n", collatz(27));
        reads();
    } else if (IS("exec")) {
        handle(SIGSEGV, SIG_IGN, 0, 0);
        pthread_create(&threads[0], 0, read_anything, (void *)100000l);
        usleep(20000);
        execl("/proc/self/exe", "app", "inherited", (char *)0);
    } else {
        return 2;
    }
    printf("%d\n", collatz(27));
    return 0;
}

/* A listener that tries to write memories that are read-only for it, and to truncate its own page under the producer.
 * Prints one line per attempt that succeeded, then "done". Started by tests/processes.rs; argument: the socket. */
#define _GNU_SOURCE 1
#include "../../../include/netgrain_listen.h"

#include <fcntl.h>

static void must_fail(const char *what, const char *memory, int succeeded) {
    if (succeeded) printf("> %s: %s succeeded\n", memory, what);
}

static int maps(int fd, size_t len, int prot, int flags) {
    void *p = mmap(NULL, len, prot, flags, fd, 0);
    if (p == MAP_FAILED) return 0;
    munmap(p, len);
    return 1;
}

/* Writes through /proc/self/mem, which overrides the protection of private mappings. */
static int writes_own_memory(const unsigned char *at) {
    int self = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    ssize_t n = self < 0 ? -1 : pwrite(self, "x", 1, (off_t)(uintptr_t)at);
    if (self >= 0) close(self);
    return n == 1;
}

static void attack(const char *memory, int fd, size_t len) {
    char path[64];
    unsigned char *at = (unsigned char *)mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if (at == (unsigned char *)MAP_FAILED) {
        printf("> %s: cannot even be read\n", memory);
        return;
    }
    must_fail("mapping it writable", memory, maps(fd, len, PROT_READ | PROT_WRITE, MAP_SHARED));
    must_fail("mapping it write-only", memory, maps(fd, len, PROT_WRITE, MAP_SHARED));
    must_fail("mprotect", memory, mprotect(at, len, PROT_READ | PROT_WRITE) == 0);
    must_fail("write", memory, pwrite(fd, "x", 1, 0) == 1);
    must_fail("truncating to nothing", memory, ftruncate(fd, 0) == 0);
    must_fail("growing", memory, ftruncate(fd, (off_t)len * 2) == 0);
    must_fail("punching a hole", memory, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)len) == 0);
    must_fail("zeroing a range", memory, fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, (off_t)len) == 0);
    must_fail("madvise(MADV_REMOVE)", memory, madvise(at, len, MADV_REMOVE) == 0);
    must_fail("writing /proc/self/mem", memory, writes_own_memory(at));
    must_fail("further seals", memory, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        must_fail("mapping it reopened", memory, maps(again, len, PROT_READ | PROT_WRITE, MAP_SHARED));
        must_fail("writing it reopened", memory, pwrite(again, "x", 1, 0) == 1);
        close(again);
    }
    must_fail("reopening it truncated", memory, open(path, O_RDWR | O_TRUNC | O_CLOEXEC) >= 0);
    munmap(at, len);
}

int main(int argc, char **argv) {
    unsigned char hello[NGL_HELLO] = {0}, welcome[NGL_ACCEPT], message[NGL_RING];
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    ngl_error err;
    int fds[4], engine = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", argc > 1 ? argv[1] : "");
    ngl_put_(hello, NGL_MAGIC);
    ngl_put_(hello + 8, NGL_VERSION);
    ngl_put_(hello + 16, NGL_LOSSLESS);
    memcpy(hello + 24, "attacker", 8);
    if (connect(engine, (struct sockaddr *)&addr, sizeof addr) != 0 || send(engine, hello, sizeof hello, 0) < 0 ||
        !ngl_receive_(engine, welcome, sizeof welcome, fds, &err) ||
        !ngl_receive_(engine, message, sizeof message, fds, &err) || fds[3] < 0) {
        printf("> the engine refused the listener\n");
        return 1;
    }
    attack("packet bytes", fds[0], (size_t)ngl_get_(message));
    attack("descriptors", fds[1], (size_t)ngl_get_(message + 8) * NGL_DESC_BYTES);
    attack("control page", fds[2], NGL_PAGE);
    /* A listener may write its cursor page, but not truncate it: the producer reads the page and would get SIGBUS. */
    must_fail("truncating to nothing", "cursor page", ftruncate(fds[3], 0) == 0);
    must_fail("growing", "cursor page", ftruncate(fds[3], (off_t)1 << 40) == 0);
    must_fail("forbidding it to others", "cursor page", fcntl(fds[3], F_ADD_SEALS, F_SEAL_WRITE) == 0);
    if (pwrite(fds[3], "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 0) != 8 ||
        fallocate(fds[3], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, NGL_PAGE) != 0)
        printf("> cursor page: cannot be written\n");
    printf("> done\n");
    fflush(stdout);
    /* Wait until standard input is closed, so that the producer reads the page after the attack. */
    while (read(0, message, sizeof message) > 0) {}
    return 0;
}

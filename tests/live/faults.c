/* Preloaded by tests: makes reading, or memory, misbehave as OUTRIDER_FAULT says.

   refuse-open   files cannot be opened with O_DIRECT
   refuse-read   files opened with O_DIRECT cannot be read
   short         a read brings one block at most, or 1000 bytes where there are no blocks
   ragged        long direct reads end within a block
   eintr         every second read is interrupted
   error-once    every third read fails, and succeeds when it is tried again
   error-always  from the 20th on, every read fails
                 (of these two: nobody sleeps before trying again)
   slow          every read takes 5 ms longer
   fail          every read fails as long as the file "failing" exists; nobody sleeps, as above
   hang          no read ends as long as the file "hanging" exists
   no-memory     there is none for pieces of 4 MB and more, once the file "shortage" exists;
                 address space without memory is never given for less than 32 MB               */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_int n_call;

static int fault(const char * name) {
    const char * wanted = getenv("OUTRIDER_FAULT");
    return wanted && strcmp(wanted, name) == 0;
}

static int is_direct(int fd) { return (fcntl(fd, F_GETFL) & O_DIRECT) != 0; }

int open(const char * path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (!real) {
        real = (int (*)(const char *, int, ...)) dlsym(RTLD_NEXT, "open");
    }
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if ((flags & O_DIRECT) && fault("refuse-open")) {
        errno = EINVAL;
        return -1;
    }
    return real(path, flags, mode);
}

ssize_t pread(int fd, void * to, size_t size, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) {
        real = (ssize_t (*)(int, void *, size_t, off_t)) dlsym(RTLD_NEXT, "pread");
    }
    if (is_direct(fd) && fault("refuse-read")) {
        errno = EINVAL;
        return -1;
    }
    return real(fd, to, size, offset);
}

int posix_memalign(void ** to, size_t alignment, size_t size) {
    static int (*real)(void **, size_t, size_t);
    if (!real) {
        real = (int (*)(void **, size_t, size_t)) dlsym(RTLD_NEXT, "posix_memalign");
    }
    if (size >= 4 << 20 && fault("no-memory") && access("shortage", F_OK) == 0) {
        return ENOMEM;
    }
    return real(to, alignment, size);
}

void * mmap(void * at, size_t size, int protection, int flags, int fd, off_t offset) {
    static void * (*real)(void *, size_t, int, int, int, off_t);
    if (!real) {
        real = (void * (*) (void *, size_t, int, int, int, off_t)) dlsym(RTLD_NEXT, "mmap");
    }
    if (fd < 0 && (flags & MAP_NORESERVE) && (protection & PROT_WRITE) && size < 32 << 20 && fault("no-memory")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real(at, size, protection, flags, fd, offset);
}

int nanosleep(const struct timespec * wanted, struct timespec * left) {
    static int (*real)(const struct timespec *, struct timespec *);
    if (!real) {
        real = (int (*)(const struct timespec *, struct timespec *)) dlsym(RTLD_NEXT, "nanosleep");
    }
    return fault("error-always") || fault("error-once") || fault("fail") ? 0 : real(wanted, left);
}

/* llama.cpp's direct reads, and those of Python. */
ssize_t read(int fd, void * to, size_t size) {
    static ssize_t (*real)(int, void *, size_t);
    if (!real) {
        real = (ssize_t (*)(int, void *, size_t)) dlsym(RTLD_NEXT, "read");
    }
    const int direct = is_direct(fd);
    if (direct && fault("refuse-read")) {
        errno = EINVAL;
        return -1;
    }
    const size_t most = direct ? 4096 : 1000;
    if (fault("short") && size > most) {
        size = most;
    } else if (fault("ragged") && direct && size > 8192) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        const ssize_t got = real(fd, to, size);
        if (got > 8192) {
            lseek(fd, at + got - 1000, SEEK_SET);
            return got - 1000;
        }
        return got;
    }
    return real(fd, to, size);
}

/* Only Outrider reads with preadv. */
ssize_t preadv(int fd, const struct iovec * pieces, int n_piece, off_t offset) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real) {
        real = (ssize_t (*)(int, const struct iovec *, int, off_t)) dlsym(RTLD_NEXT, "preadv");
    }
    const int n = atomic_fetch_add(&n_call, 1) + 1;
    const int direct = is_direct(fd);
    if (direct && fault("refuse-read")) {
        errno = EINVAL;
        return -1;
    }
    if (fault("eintr") && n % 2) {
        errno = EINTR;
        return -1;
    }
    if ((fault("error-once") && n % 3 == 0) || (fault("error-always") && n >= 20) ||
        (fault("fail") && access("failing", F_OK) == 0)) {
        errno = EIO;
        return -1;
    }
    if (fault("slow")) {
        usleep(5000);
    }
    while (fault("hang") && access("hanging", F_OK) == 0) {
        usleep(2000);
    }
    if (fault("short")) {
        struct iovec first = pieces[0];
        const size_t most = direct ? 4096 : 1000;
        first.iov_len = first.iov_len < most ? first.iov_len : most;
        return real(fd, &first, 1, offset);
    }
    const ssize_t got = real(fd, pieces, n_piece, offset);
    return fault("ragged") && got > 8192 ? got - 1000 : got;
}

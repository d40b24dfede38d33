/*
 * Counts the bytes that a process holds from malloc, and the most it held since the last reset.
 *
 * Loaded with LD_PRELOAD in front of libc, so that the figure comes from outside whatever is being measured:
 *
 *     torch, numpy, Python ──malloc/posix_memalign/free──▶ this file ──▶ the next malloc (glibc)
 *                                                             │
 *                                     live_bytes, peak_bytes ◀┘  read through ctypes.CDLL(None)
 *
 * Which size is counted: malloc_usable_size, what the block really occupies. The requested size would need a header in
 * front of every block (which breaks alignment and costs as many bytes as it reports) or a table beside them. The
 * usable size is known again at free time without either. It lies above the requested size by at most 24 bytes for
 * a block from the heap and by less than two pages for a block of its own mapping.
 *
 * What is not counted: mmap called directly (Python's arenas for objects up to 512 bytes, files, thread stacks) and what
 * malloc itself keeps but has not handed out. torch takes CPU tensors from posix_memalign, which is counted.
 *
 * A realloc that moves holds both copies for a moment, inside the next malloc: that moment is not seen.
 *
 * Order of the updates: a block is counted after it was obtained and discounted before it is given back, so memory
 * that changes hands between two threads is never counted twice: the peak never exceeds the truth.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* A cache line each: every thread writes live_bytes, almost none writes peak_bytes. */
static _Alignas(64) _Atomic int64_t live_bytes;
static _Alignas(64) _Atomic int64_t peak_bytes;
static _Alignas(64) _Atomic int64_t num_allocations;

/* ---- The next malloc ------------------------------------------------------------------------------------------ */

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void *(*next_valloc)(size_t);
static void *(*next_pvalloc)(size_t);
static size_t (*next_usable_size)(void *);
static void (*next_free)(void *);

static void *look_up(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (function == NULL) {
        static const char message[] = "lowtide meter: libc lacks a function of the malloc family; the meter needs glibc\n";
        ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
        (void)ignored;
        _exit(127);
    }
    return function;
}

/* Set while this thread is inside resolve(): dlsym itself may call calloc, which has nowhere to go yet. */
static __thread int is_resolving __attribute__((tls_model("initial-exec")));

static void resolve(void) {
    is_resolving = 1;
    next_calloc = look_up("calloc");
    next_realloc = look_up("realloc");
    next_memalign = look_up("memalign");
    next_aligned_alloc = look_up("aligned_alloc");
    next_posix_memalign = look_up("posix_memalign");
    next_valloc = look_up("valloc");
    next_pvalloc = look_up("pvalloc");
    next_usable_size = look_up("malloc_usable_size");
    next_free = look_up("free");
    next_malloc = look_up("malloc"); /* last: the others are looked at only once this one is set */
    is_resolving = 0;
}

__attribute__((constructor)) static void resolve_at_load(void) {
    if (next_malloc == NULL) resolve();
}

/* ---- Memory for dlsym, before there is a malloc to call --------------------------------------------------------- */

#define BOOTSTRAP_CAPACITY_BYTES 16384
#define BOOTSTRAP_HEADER_BYTES 16

static _Alignas(16) char bootstrap_arena[BOOTSTRAP_CAPACITY_BYTES];
static _Atomic size_t bootstrap_used_bytes;

static int is_bootstrap(const void *block) {
    const char *address = block;
    return address >= bootstrap_arena && address < bootstrap_arena + BOOTSTRAP_CAPACITY_BYTES;
}

static size_t bootstrap_size(const void *block) {
    size_t size;
    memcpy(&size, (const char *)block - BOOTSTRAP_HEADER_BYTES, sizeof size);
    return size;
}

/* Zeroed (static storage, never reused), never freed, not counted: a few hundred bytes once. */
static void *bootstrap_allocate(size_t size) {
    if (size > BOOTSTRAP_CAPACITY_BYTES - BOOTSTRAP_HEADER_BYTES) goto refused;
    size_t taken = BOOTSTRAP_HEADER_BYTES + ((size + 15) & ~(size_t)15);
    size_t offset = atomic_fetch_add(&bootstrap_used_bytes, taken);
    if (offset + taken > BOOTSTRAP_CAPACITY_BYTES) goto refused;
    memcpy(bootstrap_arena + offset, &size, sizeof size);
    return bootstrap_arena + offset + BOOTSTRAP_HEADER_BYTES;
refused:
    errno = ENOMEM;
    return NULL;
}

/* True when the call must be served from the bootstrap arena. */
static int is_before_malloc(void) {
    if (!UNLIKELY(next_malloc == NULL)) return 0;
    if (is_resolving) return 1;
    resolve();
    return 0;
}

/* ---- Counting --------------------------------------------------------------------------------------------------- */

static void raise_peak(int64_t now_bytes) {
    int64_t seen = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (now_bytes > seen && !atomic_compare_exchange_weak_explicit(&peak_bytes, &seen, now_bytes,
                                                                      memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void add_live(int64_t size) {
    raise_peak(atomic_fetch_add_explicit(&live_bytes, size, memory_order_relaxed) + size);
}

static void *count_block(void *block) {
    if (block == NULL) return NULL;
    atomic_fetch_add_explicit(&num_allocations, 1, memory_order_relaxed);
    add_live((int64_t)next_usable_size(block));
    return block;
}

static void discount_bytes(int64_t size) { atomic_fetch_sub_explicit(&live_bytes, size, memory_order_relaxed); }

/* ---- The malloc family ------------------------------------------------------------------------------------------ */

EXPORT void *malloc(size_t size) {
    if (is_before_malloc()) return bootstrap_allocate(size);
    return count_block(next_malloc(size));
}

EXPORT void *calloc(size_t count, size_t size) {
    if (is_before_malloc()) {
        size_t total;
        if (__builtin_mul_overflow(count, size, &total)) {
            errno = ENOMEM;
            return NULL;
        }
        return bootstrap_allocate(total);
    }
    return count_block(next_calloc(count, size));
}

EXPORT void free(void *block) {
    if (block == NULL || is_bootstrap(block)) return;
    if (is_before_malloc()) return; /* cannot be: nothing was handed out but bootstrap memory */
    int saved_errno = errno;
    discount_bytes((int64_t)next_usable_size(block));
    next_free(block);
    errno = saved_errno;
}

static void *move_from_bootstrap(void *block, size_t size) {
    void *moved = malloc(size);
    if (moved == NULL) return NULL;
    size_t old_size = bootstrap_size(block);
    memcpy(moved, block, old_size < size ? old_size : size);
    return moved;
}

EXPORT void *realloc(void *block, size_t size) {
    if (block == NULL) return malloc(size);
    if (is_bootstrap(block)) return move_from_bootstrap(block, size);
    if (size == 0) { /* glibc frees and returns NULL */
        free(block);
        return NULL;
    }
    if (is_before_malloc()) return NULL;
    int64_t old_size = (int64_t)next_usable_size(block);
    discount_bytes(old_size);
    void *moved = next_realloc(block, size);
    if (moved == NULL) { /* the old block lives on */
        atomic_fetch_add_explicit(&live_bytes, old_size, memory_order_relaxed);
        return NULL;
    }
    return count_block(moved);
}

EXPORT void *reallocarray(void *block, size_t count, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, total);
}

/* None of these is called by dlsym, so while resolving they have nothing to give. */

EXPORT void *memalign(size_t alignment, size_t size) {
    if (is_before_malloc()) return NULL;
    return count_block(next_memalign(alignment, size));
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
    if (is_before_malloc()) return NULL;
    return count_block(next_aligned_alloc(alignment, size));
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size) {
    if (is_before_malloc()) return ENOMEM;
    int status = next_posix_memalign(result, alignment, size);
    if (status == 0) count_block(*result);
    return status;
}

EXPORT void *valloc(size_t size) {
    if (is_before_malloc()) return NULL;
    return count_block(next_valloc(size));
}

EXPORT void *pvalloc(size_t size) {
    if (is_before_malloc()) return NULL;
    return count_block(next_pvalloc(size));
}

EXPORT size_t malloc_usable_size(void *block) {
    if (block == NULL) return 0;
    if (is_bootstrap(block)) return bootstrap_size(block);
    if (is_before_malloc()) return 0;
    return next_usable_size(block);
}

/* ---- What Python reads ------------------------------------------------------------------------------------------ */

/* Bytes held now, by usable size. */
EXPORT int64_t lowtide_meter_live_bytes(void) { return atomic_load_explicit(&live_bytes, memory_order_relaxed); }

/* Most bytes held at any moment since the last reset (or since the process began). */
EXPORT int64_t lowtide_meter_peak_bytes(void) { return atomic_load_explicit(&peak_bytes, memory_order_relaxed); }

/* Calls that handed out a block since the process began. */
EXPORT int64_t lowtide_meter_num_allocations(void) {
    return atomic_load_explicit(&num_allocations, memory_order_relaxed);
}

/* Starts a new peak at the bytes held now, and returns them. Meant for moments when no other thread allocates. */
EXPORT int64_t lowtide_meter_reset_peak(void) {
    int64_t now_bytes = atomic_load_explicit(&live_bytes, memory_order_relaxed);
    atomic_store_explicit(&peak_bytes, now_bytes, memory_order_relaxed);
    raise_peak(atomic_load_explicit(&live_bytes, memory_order_relaxed)); /* an allocation may have come between */
    return now_bytes;
}

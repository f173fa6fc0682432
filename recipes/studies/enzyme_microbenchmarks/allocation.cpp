// Preloaded into a process that has died before, to learn whether memory was why: code made by Enzyme does not look at
// what malloc returns. Here a failing allocation ends the process with an exit code that says so.
#include <cstddef>
#include <unistd.h>

extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);

static void *or_end(void *got, std::size_t size) {
  if (!got && size) _exit(77);
  return got;
}

void *malloc(std::size_t size) { return or_end(__libc_malloc(size), size); }
void *calloc(std::size_t count, std::size_t size) { return or_end(__libc_calloc(count, size), count * size); }
void *realloc(void *old, std::size_t size) { return or_end(__libc_realloc(old, size), size); }
}

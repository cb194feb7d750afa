// Loaded into each process of a run (LD_PRELOAD): shifts the wall clock, and delays syncs to the disk.
//
// machine.py compiles it, and changes the two numbers in the file that SURREAL_CHAOS_MACHINE names. The monotonic clock
// and the times of files stay true, as on a machine whose clock is set.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *numbers; // offset of the clock, s; delay of a sync, ms

__attribute__((constructor)) static void map_numbers(void) {
  const char *path = getenv("SURREAL_CHAOS_MACHINE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0)
    return;
  void *found = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (found != MAP_FAILED)
    numbers = found;
}

// System calls, because looking up libc's functions may allocate memory before there is an allocator.
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && numbers && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += numbers[0];
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec found;
  int result = clock_gettime(CLOCK_REALTIME, &found);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return result;
}

time_t time(time_t *out) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (out)
    *out = found.tv_sec;
  return found.tv_sec;
}

static void wait_for_disk(void) {
  if (numbers && numbers[1])
    usleep(1000 * numbers[1]);
}

int fsync(int file) {
  wait_for_disk();
  return syscall(SYS_fsync, file);
}

int fdatasync(int file) {
  wait_for_disk();
  return syscall(SYS_fdatasync, file);
}

// Annotations for Clang's thread-safety analysis (`make thread-safety`), empty for other compilers, and a mutex
// that carries them. A comment marks fields that belong to one thread.
#pragma once

#include <mutex>

#ifdef __clang__
#define OUTRIDER_ANNOTATE(x) __attribute__((x))
#else
#define OUTRIDER_ANNOTATE(x)
#endif
#define CAPABILITY(name) OUTRIDER_ANNOTATE(capability(name))
#define SCOPED_CAPABILITY OUTRIDER_ANNOTATE(scoped_lockable)
#define GUARDED_BY(mutex) OUTRIDER_ANNOTATE(guarded_by(mutex))
#define REQUIRES(...) OUTRIDER_ANNOTATE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) OUTRIDER_ANNOTATE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) OUTRIDER_ANNOTATE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) OUTRIDER_ANNOTATE(release_capability(__VA_ARGS__))

namespace outrider {

class CAPABILITY("mutex") Mutex {
  private:
    friend class Lock;
    friend class Unlocked;
    std::mutex mutex_;
};

class SCOPED_CAPABILITY Lock {
  public:
    explicit Lock(Mutex & mutex) ACQUIRE(mutex) : lock_(mutex.mutex_) {}
    ~Lock() RELEASE() {}
    // For a condition variable, which unlocks it only while it waits.
    std::unique_lock<std::mutex> & native() { return lock_; }

  private:
    std::unique_lock<std::mutex> lock_;
};

// Releases a mutex for a while.
class SCOPED_CAPABILITY Unlocked {
  public:
    explicit Unlocked(Mutex & mutex) RELEASE(mutex) : mutex_(mutex.mutex_) { mutex_.unlock(); }
    ~Unlocked() RELEASE() { mutex_.lock(); }  // the analysis knows that the scope's end locks again

  private:
    std::mutex & mutex_;
};

}  // namespace outrider

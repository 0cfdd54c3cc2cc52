// Schedulers by name.
#pragma once

#include <memory>
#include <string>

#include "../evict/eviction.h"
#include "../spec.h"
#include "copy_desk.h"
#include "host_share.h"
#include "scheduler.h"

namespace outrider {

// Throws std::invalid_argument, a sentence, for an unknown name or numbers out of range. Residency,
// eviction and desk must outlive the scheduler.
std::unique_ptr<Scheduler> make_scheduler(const Spec & spec, Residency & residency, Eviction & eviction,
                                          CopyDesk & desk, const HostShare & host);
std::vector<std::string> scheduler_names();

}  // namespace outrider

// Schedulers by name.
#pragma once

#include <memory>
#include <string>

#include "core/evict/eviction.h"
#include "core/schedule/copy_desk.h"
#include "core/schedule/host_share.h"
#include "core/schedule/scheduler.h"
#include "core/spec.h"

namespace outrider {

// Throws std::invalid_argument, a sentence, for an unknown name or numbers out of range. Residency,
// eviction and desk must outlive the scheduler.
std::unique_ptr<Scheduler> make_scheduler(const Spec & spec, Residency & residency, Eviction & eviction,
                                          CopyDesk & desk, const HostShare & host);
std::vector<std::string> scheduler_names();

}  // namespace outrider

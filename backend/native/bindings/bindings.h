// One function per topic; each file binds what its name says.
#pragma once

#include <nanobind/nanobind.h>

namespace outrider {

class Core;

void bind_allocate(nanobind::module_ & m);
void bind_devices(nanobind::module_ & m);
void bind_types(nanobind::module_ & m);
void bind_evict(nanobind::module_ & m);
void bind_live(nanobind::module_ & m);
void bind_predict(nanobind::module_ & m);
void bind_recorder(nanobind::module_ & m);
void bind_repack(nanobind::module_ & m);
void bind_sim(nanobind::module_ & m);
void bind_speed(nanobind::module_ & m);

// The core in a Python `Core` object.
Core & core_of(nanobind::handle core);

}  // namespace outrider
